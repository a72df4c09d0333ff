package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os/exec"
	"path/filepath"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// Node is one Kafka broker and controller. Start returns when it answers for metadata in which it finds itself, so it
// is not fenced; after Kill, Kafka takes a node back when its session is over, which is up to 3 s later. Of three
// nodes, two must run for one to serve, see Cluster.StartAll. Stop hands the partitions that it leads over, and fails
// where the other nodes are too few to agree to that.
type Node struct {
	testserver.Process
	// ID is Kafka's node id.
	ID int

	cluster *Cluster
	dir     string
	ports   map[Listener]*testserver.Port
}

func (c *Cluster) node(id int) *Node {
	dir := filepath.Join(c.dir, "node-"+strconv.Itoa(id))
	n := &Node{
		Process: testserver.Process{Name: fmt.Sprintf("Kafka node %d", id), Log: filepath.Join(dir, "kafka.log")},
		ID:      id, cluster: c, dir: dir, ports: map[Listener]*testserver.Port{},
	}
	n.Command = func() *exec.Cmd { return c.java("kafka.Kafka", n.properties()) }
	n.Ready = n.serves
	return n
}

// Addr is the host and port of the listener, the same over restarts.
func (n *Node) Addr(l Listener) string {
	p := n.ports[l]
	if p == nil {
		panic(fmt.Sprintf("BUG: the cluster was started without the listener %s, see Options", l))
	}
	return net.JoinHostPort("127.0.0.1", strconv.Itoa(p.Number))
}

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

// metadata asks this node, and no other, once.
func (n *Node) metadata(ctx context.Context, topics ...string) (*kmsg.MetadataResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	cl, err := kgo.NewClient(kgo.SeedBrokers(n.Addr(Plaintext)))
	if err != nil {
		return nil, err
	}
	defer cl.Close()
	req := kmsg.NewPtrMetadataRequest()
	req.Topics = []kmsg.MetadataRequestTopic{} // nil asks for all
	for _, name := range topics {
		topic := kmsg.NewMetadataRequestTopic()
		topic.Topic = &name
		req.Topics = append(req.Topics, topic)
	}
	return req.RequestWith(ctx, cl.SeedBrokers()[0])
}

func (n *Node) serves(ctx context.Context) error {
	m, err := n.metadata(ctx)
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
