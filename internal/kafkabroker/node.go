package kafkabroker

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbridge-io/kbridge/internal/child"
)

const (
	// startLimit is how long a node may take to serve; a start takes about three seconds on an idle machine.
	startLimit = 2 * time.Minute
	// stopLimit is how long an orderly end may take. It fails where the other nodes are too few to agree to it.
	stopLimit = 30 * time.Second
)

// Node is one Kafka broker and controller. One call at a time starts or ends it: the others wait.
type Node struct {
	// ID is Kafka's node id.
	ID int

	cluster *Cluster
	dir     string
	ports   map[Listener]*port

	mu     sync.Mutex
	proc   *child.Process // guarded by mu; nil when nobody has started it, or somebody has ended it
	paused bool           // guarded by mu
}

// Addr is the host and port of the listener, the same over restarts.
func (n *Node) Addr(l Listener) string {
	p := n.ports[l]
	if p == nil {
		panic(fmt.Sprintf("BUG: the cluster was started without the listener %s, see Options", l))
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.number))
}

// Start starts the node with the data it had before, and returns when it serves: it answers for metadata, in which it
// finds itself, so it is not fenced. It does nothing when the node runs. After Kill, Kafka takes the node back when
// its session is over, which is up to 3 s later. Of three nodes, two must run for one to serve; see Cluster.StartAll.
func (n *Node) Start(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil && n.proc.Running() {
		return nil
	}
	log, err := os.OpenFile(n.Log(), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("start Kafka node %d: %w", n.ID, err)
	}
	defer log.Close() // the child has its own copy
	cmd := n.cluster.java("kafka.Kafka", n.properties())
	cmd.Stdout, cmd.Stderr = log, log
	if n.proc, err = child.Start(cmd); err != nil {
		return fmt.Errorf("start Kafka node %d: %w", n.ID, err)
	}
	n.paused = false
	if err := n.await(ctx, n.proc, n.serves); err != nil {
		n.proc.Kill()
		n.proc = nil
		return fmt.Errorf("start Kafka node %d: %w", n.ID, err)
	}
	return nil
}

// Stop asks the node to end, for which it hands the partitions that it leads over, and waits until it has. A node that
// does not end, as when the others are too few, is killed after half a minute, and the error says so. It does nothing
// when the node is down.
func (n *Node) Stop(ctx context.Context) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil {
		return nil
	}
	defer func() { n.proc = nil }()
	ctx, cancel := context.WithTimeoutCause(ctx, stopLimit, fmt.Errorf("still running after %s", stopLimit))
	defer cancel()
	n.proc.Signal(syscall.SIGTERM)
	n.proc.Signal(syscall.SIGCONT) // a paused process would not see the other
	select {
	case <-n.proc.Done():
		return nil
	case <-ctx.Done():
		n.proc.Kill()
		return fmt.Errorf("stop Kafka node %d: killed it, as it did not end: %w\n%s", n.ID, context.Cause(ctx), n.logTail(failedNodeLog))
	}
}

// Restart stops the node in an orderly way and starts it again.
func (n *Node) Restart(ctx context.Context) error {
	if err := n.Stop(ctx); err != nil {
		return err
	}
	return n.Start(ctx)
}

// Kill ends the node at once, with SIGKILL, and returns when it has ended. It does nothing when the node is down.
func (n *Node) Kill() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.Kill()
		n.proc = nil
	}
}

// Pause stops the process without ending it: connections stay and say nothing.
func (n *Node) Pause() { n.pause(true, syscall.SIGSTOP) }

// Resume lets a paused node go on.
func (n *Node) Resume() { n.pause(false, syscall.SIGCONT) }

func (n *Node) pause(paused bool, s syscall.Signal) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc != nil {
		n.proc.Signal(s)
		n.paused = paused
	}
}

// Running tells whether the process is there and not paused.
func (n *Node) Running() bool { return n.process() != nil }

// process returns nil for a node that is down or paused.
func (n *Node) process() *child.Process {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.proc == nil || !n.proc.Running() || n.paused {
		return nil
	}
	return n.proc
}

// Log returns the path of the node's log, which goes on over restarts.
func (n *Node) Log() string { return filepath.Join(n.dir, "kafka.log") }

func (n *Node) properties() string { return filepath.Join(n.dir, "server.properties") }

// java returns a command that runs one of Kafka's programs. The heap is small and the compiler quick, because a broker
// in a test lives for seconds.
func (c *Cluster) java(args ...string) *exec.Cmd {
	flags := []string{
		"-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-XX:-UsePerfData", "-XX:+ExitOnOutOfMemoryError",
		"-Djava.awt.headless=true",
		"-Dlog4j2.configurationFile=" + filepath.Join(c.dir, "log4j2.properties"),
		"-cp", filepath.Join(c.jars, "*"),
	}
	if c.archive != "" {
		flags = append(flags, c.archive)
	}
	cmd := exec.Command(javaPath(), append(flags, args...)...)
	cmd.Dir = c.dir
	return cmd
}

// client knows this node only.
func (n *Node) client() (*kgo.Client, error) {
	return kgo.NewClient(kgo.SeedBrokers(n.Addr(Plaintext)))
}

// metadata asks the one node that the client knows.
func metadata(ctx context.Context, cl *kgo.Client, topics ...string) (*kmsg.MetadataResponse, error) {
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // nil asks for all
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return req.RequestWith(ctx, cl.SeedBrokers()[0])
}

func (n *Node) serves(ctx context.Context, cl *kgo.Client) error {
	m, err := metadata(ctx, cl)
	if err != nil {
		return err
	}
	for _, b := range m.Brokers { // those that are not fenced
		if int(b.NodeID) == n.ID {
			return nil
		}
	}
	return errors.New("it answers, but is fenced")
}

// await asks until there is no error, or the node's process has ended.
func (n *Node) await(ctx context.Context, proc *child.Process, ask func(context.Context, *kgo.Client) error) error {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("not ready after %s", startLimit))
	defer cancel()
	cl, err := n.client()
	if err != nil {
		return err
	}
	defer cl.Close()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	last := errors.New("not asked yet")
	for {
		select {
		case <-proc.Done():
			return fmt.Errorf("it ended (%s)\n%s", ending(proc.Wait()), n.logTail(failedNodeLog))
		case <-ctx.Done():
			return fmt.Errorf("%w; its last answer: %w\n%s", context.Cause(ctx), last, n.logTail(failedNodeLog))
		case <-tick.C:
			err := askShortly(ctx, cl, ask)
			if err == nil {
				return nil
			}
			if ctx.Err() == nil { // else the question was cut short, and the answer before says more
				last = err
			}
		}
	}
}

// ending says how a process ended.
func ending(err error) string {
	if err == nil {
		return "exit status 0"
	}
	return err.Error()
}

func askShortly(ctx context.Context, cl *kgo.Client, ask func(context.Context, *kgo.Client) error) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	return ask(ctx, cl)
}

// How much of a log is shown, in bytes: of a node that did not start, and of one in whose test something failed.
const (
	failedNodeLog = 8 << 10
	failedTestLog = 2 << 10
)

// logTail returns the last lines of the log under a heading that names the file.
func (n *Node) logTail(size int64) string {
	heading := fmt.Sprintf("the end of the log of Kafka node %d, %s:", n.ID, n.Log())
	f, err := os.Open(n.Log())
	if err != nil {
		return heading + " " + err.Error()
	}
	defer f.Close()
	var tail []byte
	if end, err := f.Seek(0, io.SeekEnd); err == nil {
		from := max(0, end-size)
		tail = make([]byte, end-from)
		read, _ := f.ReadAt(tail, from)
		tail = tail[:read]
		if _, rest, ok := bytes.Cut(tail, []byte("\n")); ok && from > 0 {
			tail = rest // the first line is a part of one
		}
	}
	return heading + "\n" + string(bytes.TrimSpace(tail))
}
