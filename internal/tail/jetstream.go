package tail

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/plural"
	"github.com/kbridge-io/kbridge/sinks/nats"
)

const (
	// prefetched is how many messages may wait here to be printed.
	prefetched = 128
	// A stream that says nothing for two of these is looked up again: it may be gone.
	heartbeat = 2 * time.Second
	// leftover is how long the server keeps a consumer whose reader vanished.
	leftover = time.Minute
)

// JetStream is the stream of a NATS sink. Its filters are subjects, with wildcards.
type JetStream struct {
	// Where says where the stream is. It is asked before each attempt to connect; an
	// error means that there is nothing to connect to yet.
	Where func() (config.NATS, error)
	// ServerName is the name that the server must have; empty is any.
	ServerName string
}

var _ Source = JetStream{}

func (s JetStream) open(r *reader) source { return &streamReader{JetStream: s, reader: r} }

// streamReader is what outlives a connection. One goroutine uses it.
type streamReader struct {
	JetStream
	*reader

	created time.Time // of the stream that next counts in
	next    uint64    // sequence of the next message; 0: begin as the options say
	from    string    // the consumer that the last message came from
	holes   bool      // the stream has gaps that are no loss
	asked   time.Time // when the stream was last asked about a gap
}

// session is one connection's life: it connects, finds the stream and hands on
// events until something ends it.
func (r *streamReader) session(ctx context.Context) error {
	source, err := r.Where()
	if err != nil {
		return err
	}
	nc, end, err := r.dial(ctx, source)
	if err != nil {
		return err
	}
	defer end()
	if r.ServerName != "" && nc.ConnectedServerName() != r.ServerName {
		return fmt.Errorf("another NATS server has taken %s", nc.ConnectedUrlRedacted())
	}
	// reading ends with ctx, and when the connection does.
	reading, stop := context.WithCancel(ctx)
	defer stop()
	nc.SetClosedHandler(func(*client.Conn) { stop() })
	if nc.IsClosed() {
		return lost(nc)
	}
	denied := make(chan error, 1)
	nc.SetErrorHandler(func(_ *client.Conn, _ *client.Subscription, err error) {
		if errors.Is(err, client.ErrPermissionViolation) {
			select {
			case denied <- err:
			default:
			}
		}
	})
	err = r.follow(reading, nc, source)
	switch {
	case isFinal(err):
		return err
	case nc.IsClosed():
		return lost(nc) // err tells of it in the client's words
	}
	select {
	case refusal := <-denied:
		return refusal // the question itself has only timed out
	default:
		return err
	}
}

// dial connects. A connection that is made does not end with ctx, so that the
// consumer can be taken away; end does it.
func (r *streamReader) dial(ctx context.Context, source config.NATS) (_ *client.Conn, end func(), err error) {
	life, cut := context.WithCancel(context.WithoutCancel(ctx))
	kept := context.AfterFunc(ctx, cut)
	nc, err := nats.Dial(life, source, client.Name("kbridge tail"))
	if err != nil {
		cut()
		return nil, nil, err
	}
	kept()
	// What hangs when ctx has ended hangs no longer than this.
	watch := context.AfterFunc(ctx, func() { time.AfterFunc(time.Second, cut) })
	return nc, func() { watch(); nc.Close(); cut() }, nil
}

func lost(nc *client.Conn) error {
	err := nc.LastError()
	if err == nil {
		err = client.ErrConnectionClosed
	}
	return fmt.Errorf("the connection to the server is lost: %w", err)
}

// follow hands on the stream's messages until ctx ends or the consumer breaks.
func (r *streamReader) follow(ctx context.Context, nc *client.Conn, source config.NATS) error {
	name := source.Stream.Name
	js, err := nats.JetStream(nc, source)
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	stream, err := r.find(ctx, js, name)
	if err != nil {
		return err
	}
	settings := r.begin(stream.CachedInfo())
	asking, done := context.WithTimeout(ctx, requestTimeout)
	consumer, err := stream.OrderedConsumer(asking, settings)
	done()
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	messages, err := consumer.Messages(jetstream.PullMaxMessages(prefetched), jetstream.PullHeartbeat(heartbeat))
	if err != nil {
		return fmt.Errorf("read stream %s: %w", name, err)
	}
	defer func() {
		messages.Stop()
		if info := consumer.CachedInfo(); info != nil && nc.IsConnected() {
			leaving, done := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
			defer done()
			_ = js.DeleteConsumer(leaving, name, info.Name) // else the server does it, later
		}
	}()
	r.found(fmt.Sprintf("stream %s at %s", name, nc.ConnectedUrlRedacted()))
	for {
		m, err := messages.Next(jetstream.NextContext(ctx))
		if err != nil {
			return fmt.Errorf("read stream %s: %w", name, err)
		}
		if err := r.take(ctx, stream, m); err != nil {
			return err
		}
	}
}

func (r *streamReader) find(ctx context.Context, js jetstream.JetStream, name string) (jetstream.Stream, error) {
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	stream, err := js.Stream(ctx, name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		return nil, fmt.Errorf("the server has no stream %s yet", name)
	case err != nil:
		return nil, fmt.Errorf("look up stream %s: %w", name, err)
	}
	subjects := stream.CachedInfo().Config.Subjects
	if r.Filter == "" || len(subjects) == 0 {
		return stream, nil
	}
	for _, subject := range subjects {
		if overlap(r.Filter, subject) {
			return stream, nil
		}
	}
	return nil, finalError{fmt.Errorf("filter %q: stream %s has no such subject: it stores %s", r.Filter, name, strings.Join(subjects, ", "))}
}

// overlap reports whether a subject can match both patterns.
func overlap(a, b string) bool {
	as, bs := strings.Split(a, "."), strings.Split(b, ".")
	for i := range min(len(as), len(bs)) {
		switch {
		case as[i] == ">" || bs[i] == ">":
			return true
		case as[i] != "*" && bs[i] != "*" && as[i] != bs[i]:
			return false
		}
	}
	return len(as) == len(bs)
}

// begin says where to read from, and tells what is not there any more.
func (r *streamReader) begin(info *jetstream.StreamInfo) jetstream.OrderedConsumerConfig {
	first, end := info.State.FirstSeq, info.State.LastSeq+1
	switch {
	case r.created.IsZero():
		if !r.All && r.Since.IsZero() {
			if r.waited {
				r.Since = r.began // what came while we waited is new
			} else {
				r.next = end
			}
		}
	case !r.created.Equal(info.Created):
		r.Note("the stream was made anew: reading it from its beginning")
		r.All, r.next = true, 0
	case r.next > end:
		r.Note("the stream ends before what was read of it: it has lost " + plural.Of(r.next-end, "event"))
		r.next = end
	case r.next > 0 && first > r.next:
		r.lost(first - r.next)
		r.next = first
	}
	r.created, r.from = info.Created, ""
	r.holes = info.State.NumDeleted > 0 || info.Config.MaxMsgsPerSubject > 0

	settings := jetstream.OrderedConsumerConfig{InactiveThreshold: leftover, MaxResetAttempts: 1}
	if r.Filter != "" {
		settings.FilterSubjects = []string{r.Filter}
	}
	switch {
	case r.next > 0:
		settings.DeliverPolicy, settings.OptStartSeq = jetstream.DeliverByStartSequencePolicy, r.next
	case r.All:
		settings.DeliverPolicy = jetstream.DeliverAllPolicy
	default:
		settings.DeliverPolicy, settings.OptStartTime = jetstream.DeliverByStartTimePolicy, &r.Since
	}
	return settings
}

func (r *streamReader) lost(n uint64) {
	text := fmt.Sprintf("lost %s: the stream's limits removed what was not read", plural.Of(n, "event"))
	if r.Filter != "" {
		text = fmt.Sprintf("lost events: the stream's limits removed %d before they were read; those that match the filter are missing", n)
	}
	r.Note(text)
}

// take hands on one message.
func (r *streamReader) take(ctx context.Context, stream jetstream.Stream, m jetstream.Msg) error {
	meta, err := m.Metadata()
	if err != nil {
		return fmt.Errorf("read message: %w", err)
	}
	seq := meta.Sequence.Stream
	if r.next > 0 && seq > r.next && r.doubtful(meta.Consumer) {
		r.checkGap(ctx, stream, seq)
	}
	r.next, r.from = seq+1, meta.Consumer
	e, err := Decode(m.Headers(), m.Data())
	if err != nil {
		r.passOver(fmt.Sprintf("message %d on %s", seq, m.Subject()), err)
		return nil
	}
	return r.hand(e)
}

// doubtful says whether a gap before a message may be a loss. With a filter gaps are
// what is expected, unless the consumer had to begin anew.
func (r *streamReader) doubtful(consumer string) bool {
	if r.Filter != "" {
		return r.from != "" && r.from != consumer
	}
	return !r.holes || time.Since(r.asked) > time.Second
}

// checkGap tells of messages before seq that the stream's limits removed. Those
// that somebody removed from its middle, or that a newer one replaced, are no loss.
func (r *streamReader) checkGap(ctx context.Context, stream jetstream.Stream, seq uint64) {
	r.asked = time.Now()
	ctx, done := context.WithTimeout(ctx, requestTimeout)
	defer done()
	info, err := stream.Info(ctx)
	if err != nil {
		return // the connection's end is noticed elsewhere
	}
	r.holes = r.holes || info.State.NumDeleted > 0
	if first := min(info.State.FirstSeq, seq); first > r.next {
		r.lost(first - r.next)
	}
}

// hopeless implements source.
func (r *streamReader) hopeless(err error) bool {
	for _, cause := range []error{
		client.ErrAuthorization, client.ErrAuthExpired, client.ErrAuthRevoked, client.ErrPermissionViolation,
		client.ErrSecureConnRequired, client.ErrSecureConnWanted, client.ErrNkeysNotSupported,
		jetstream.ErrJetStreamNotEnabled, jetstream.ErrJetStreamNotEnabledForAccount,
	} {
		if errors.Is(err, cause) {
			return true
		}
	}
	var api *jetstream.APIError
	return errors.As(err, &api) && api.Code == 400
}
