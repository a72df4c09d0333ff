package main

import (
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/plural"
	"github.com/kbridge-io/kbridge/internal/status"
	"github.com/kbridge-io/kbridge/sinks/stdout"
)

const (
	// slow is the age of an event from which on its sink is.
	slow = time.Minute
	// newDeadLetter is for how long a dead letter is news: nothing else ends it.
	newDeadLetter = 10 * time.Minute
)

// problem is something that keeps the daemon from being ready, with what to do.
func problem(about, reason string, err error, advice string) status.Problem {
	return status.Problem{About: about, Reason: reason, Text: oneLine(err), Advice: advice, Unready: true}
}

// notice is something that somebody should look at though the daemon is ready.
func notice(about, reason, text, advice string) status.Problem {
	return status.Problem{About: about, Reason: reason, Text: text, Advice: advice}
}

// oneLine is an error's text: those of several errors stand in lines.
func oneLine(err error) string { return strings.ReplaceAll(err.Error(), "\n", "; ") }

// problems are what is wrong now, what keeps the daemon from being ready first. It does
// not wait for anything.
func (d *daemon) problems() []status.Problem {
	d.mu.Lock()
	defer d.mu.Unlock()
	var problems []status.Problem
	if d.cluster != nil {
		problems = append(problems, clusterProblem(d.cluster))
	}
	for _, o := range d.outputs {
		problems = append(problems, o.problems()...)
	}
	if d.keeper != nil {
		if err := d.keeper.Err(); err != nil {
			problems = append(problems, problem("state", "unwritable", err, "Make room on the disk, or mend it. Events go on; a restart would send again what has come since."))
		}
		if err := d.keeper.Residue(); err != nil {
			problems = append(problems, problem("state", "residue", err, "Wait: they go by themselves, and events go on. Where this lasts, the reason says what keeps them."))
		}
	}
	if len(d.selected) == 0 {
		problems = append(problems, problem("", "starting", errors.New("starting"), "Wait: it connects and loads what is stored."))
	}
	problems = append(problems, resourceProblems(d.selected)...)
	return append(problems, d.notices(time.Now())...)
}

// unready are those of the problems that keep the daemon from being ready.
func unready(problems []status.Problem) (n int) {
	for _, p := range problems {
		if p.Unready {
			n++
		}
	}
	return n
}

// notices are what is wrong though the daemon is ready. The lock is held.
func (d *daemon) notices(now time.Time) []status.Problem {
	var notices []status.Problem
	for _, o := range d.outputs {
		notices = append(notices, o.notices(now)...)
	}
	if d.access == nil {
		return notices
	}
	if err := d.access.Err(); err != nil {
		notices = append(notices, notice("server", "files", oneLine(err), "Mend the file that server.auth or server.tls names: it is read again for each connection."))
	}
	return notices
}

func clusterProblem(err error) status.Problem {
	reason := informer.ReasonOf(err)
	advice := watchAdvice[reason]
	switch reason {
	case informer.Forbidden:
		advice = "Let kbridge get the namespace kube-system (`kbridge rbac` prints the roles), or name the cluster in `cluster`."
	case informer.Unreachable:
		advice = "Does it run, and is it reached from here? Does the kubeconfig name it? kbridge tries again by itself."
	}
	return problem("API server", string(reason), fmt.Errorf("%s: %w", unidentified(err), err), advice)
}

// resourceProblems are those of all resources. What several have in common is told once.
func resourceProblems(all []*selected) []status.Problem {
	type cause struct{ reason, text string }
	var problems []status.Problem
	var names [][]string
	at := map[cause]int{}
	for _, s := range all {
		err := s.informer.Err()
		if err == nil {
			continue
		}
		p := resourceProblem(err)
		i, known := at[cause{p.Reason, p.Text}]
		if !known {
			i = len(problems)
			at[cause{p.Reason, p.Text}] = i
			problems, names = append(problems, p), append(names, nil)
		}
		names[i] = append(names[i], s.informer.Name())
	}
	for i := range problems {
		problems[i].About = "resource " + strings.Join(names[i], ", ")
	}
	return problems
}

func resourceProblem(err error) status.Problem {
	const about = "" // see resourceProblems
	if errors.Is(err, informer.ErrNotListed) {
		return problem(about, "starting", err, "Wait: its first list is on its way to the sinks. Where this lasts, look at the API server and the sinks.")
	}
	reason := informer.ReasonOf(err)
	return problem(about, string(reason), err, watchAdvice[reason])
}

const goesOn = " kbridge tries again by itself, and goes on from where it was."

// watchAdvice says what to do where a resource can not be watched.
var watchAdvice = map[informer.Reason]string{
	informer.Forbidden:    "Let kbridge list and watch it: `kbridge rbac` prints the roles that the configuration needs." + goesOn,
	informer.Unauthorized: "Is the token or the client certificate that kbridge has still valid? A pod's token is read again by itself." + goesOn,
	informer.NotServed:    "Is its name right (lower case, plural), and its group and version? Where its definition is still to come, or has gone, kbridge waits for it.",
	informer.Untrusted:    "Is the authority in the kubeconfig, or in the pod's service account, that of the API server's certificate? Its file is read again when it changes." + goesOn,
	informer.Unreachable:  "Does the API server run, and is it reached from here?" + goesOn,
	informer.Overloaded:   "Look at the API server: it has too much to do, or priority and fairness hold kbridge back." + goesOn,
	informer.Silent:       "Look at what is between kbridge and the API server: connections are open and nothing comes." + goesOn,
	informer.Unreadable:   "Look at the objects of the resource and at the server of its API: what comes can not be read." + goesOn,
	informer.Failed:       "Look at the API server, or at the server of an aggregated API." + goesOn,
}

// problems are what keeps the output from delivering.
func (o *output) problems() []status.Problem {
	about := "sink " + o.entry.Name
	var problems []status.Problem
	if err := o.sink.Err(); err != nil {
		problems = append(problems, problem(about, "undelivered", err, sinkAdvice(err)))
	}
	if err := o.dead.Err(); err != nil {
		problems = append(problems, problem(about, "deadLettersUnwritable", err, "See that dead letters can be written: in a file, make room or move it away; on a subject, look at its stream. Refused events wait, and so do later ones of their objects."))
	}
	if err := o.lane.Err(); err != nil {
		problems = append(problems, problem(about, "snapshotAwaited", err, "Wait: it begins when the state is stored and the sink takes events."))
	}
	return problems
}

// sinkAdvice says what to do about an error of a sink. kbridge keeps what it has read.
func sinkAdvice(err error) string {
	const waits = " kbridge keeps what is not delivered and tries again by itself."
	var dns *net.DNSError
	var untrusted *tls.CertificateVerificationError
	var timeout net.Error
	switch {
	case errors.Is(err, stdout.ErrReaderGone):
		return "Start kbridge again with a reader for its output."
	case errors.As(err, &dns):
		return "Is the broker's name right, and known here?" + waits
	case errors.Is(err, syscall.ECONNREFUSED):
		return "Nothing listens there: does the broker run, and is the port right?" + waits
	case errors.As(err, &untrusted):
		return "Is tls.ca the authority of the broker's certificate, and is the name in it the one that is connected to?" + waits
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, fs.ErrPermission):
		return "Is the file there that the configuration names, and may kbridge read it?" + waits
	case errors.Is(err, os.ErrDeadlineExceeded), errors.As(err, &timeout) && timeout.Timeout():
		return "No answer comes: does the broker run, and does a firewall or NetworkPolicy let kbridge through?" + waits
	default:
		return "Look at the broker: does it let kbridge in, and does it store what is published?" + waits
	}
}

// notices are what is wrong though the sink takes events.
func (o *output) notices(now time.Time) []status.Problem {
	about, s := "sink "+o.entry.Name, o.lane.Status(now)
	var notices []status.Problem
	if s.FoldedObjects > 0 {
		notices = append(notices, notice(about, "behind",
			fmt.Sprintf("behind on %s: it gets the last state of each, and not each change", plural.Of(s.FoldedObjects, "object")),
			"Is the broker fast enough, and the window (window.bytes, window.events) large enough for its answers? It catches up by itself."))
	}
	if age := time.Duration(s.OldestSeconds * float64(time.Second)); age > slow && o.sink.Err() == nil {
		text := fmt.Sprintf("an event has not been acknowledged for %s", age.Round(time.Second))
		if s.LastError != nil {
			text += ": " + s.LastError.Text
		}
		notices = append(notices, notice(about, "slow", text, "Look at the broker: does it take events of this subject or topic? The event is tried again by itself."))
	}
	if last := s.DeadLetters.Last; !last.IsZero() && now.Sub(last) < newDeadLetter {
		notices = append(notices, notice(about, "deadLetters",
			fmt.Sprintf("%s in the dead letters, the last one since %s", plural.Of(s.DeadLetters.Events, "event"), last.Format(time.TimeOnly)),
			fmt.Sprintf("Look at them in %s: each says why it was refused. No retry delivers them.", o.deadLetterTarget)))
	}
	return notices
}
