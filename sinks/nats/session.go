package nats

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// session is the life of one connection. Its goroutines are: the sink's run,
// which is in connect and then in serve; the sender, which alone turns events
// into messages; and the client's own, which calls onAck and onError.
type session struct {
	sink   *Sink
	server server
	nc     *client.Conn
	raw    *dialer       // to cut the connection
	closed chan struct{} // closed when the client is done with the connection
	gone   chan struct{} // closed by over
	queue  chan item     // events on their way to the sender; as long as the window
	// suspect has a token when an answer made the stream's presence doubtful.
	suspect chan struct{}
	limit   int64  // of a message, where the configuration has one
	inbox   string // what the subjects of acknowledgements begin with
	workers sync.WaitGroup

	// Guarded by sink.mu.
	err     error // why the session is over
	denied  error // the last refusal that the server told outside of an answer
	pending map[uint64]pending
	last    uint64 // number of the last message
	sending uint64 // number of the message that PublishMsg has in hand, or 0
	early   early  // its end, if that came before PublishMsg returned
}

// early is the end of the message that is being sent.
type early struct {
	ended bool
	err   error
}

// item is an event that waits for the sender.
type item struct {
	event *event.Event
	done  func(error)
	size  int
}

// pending is a message that waits for its acknowledgement.
type pending struct {
	done    func(error)
	size    int
	subject string
	sent    time.Time
}

// serve finds the stream, lets Publish use the session, and watches over it. It
// returns why the session ended, with everything that was under way failed and
// all goroutines gone.
func (ses *session) serve(ctx context.Context, pause *sinks.Backoff) (err error) {
	s := ses.sink
	ses.workers.Go(ses.send)
	ses.workers.Go(ses.sweep)
	defer func() {
		if ctx.Err() != nil {
			err = sinks.ErrClosed
		}
		ses.over(err)
		ses.raw.close() // so that nothing waits for a server that does not read
		ses.nc.Close()
		<-ses.closed
		ses.workers.Wait()
	}()

	sub, err := ses.nc.Subscribe(ses.inbox+"*", ses.onAck)
	if err == nil {
		err = sub.SetPendingLimits(-1, -1) // the window is the limit
	}
	if err != nil {
		return fmt.Errorf("subscribe to acknowledgements: %w", err)
	}
	for {
		err := ses.checkStream(ctx)
		if err == nil {
			pause.Reset()
			s.release(ses)
			select {
			case <-ses.suspect:
				continue
			case <-ses.closed:
			case <-ctx.Done():
			}
		}
		switch {
		case ctx.Err() != nil:
			return sinks.ErrClosed
		case ses.isClosed():
			return ses.ending()
		}
		s.count(&s.stats.Failures.Lookup)
		s.failed(err)
		pause.Wait(ctx, ses.closed)
	}
}

func (ses *session) isClosed() bool {
	select {
	case <-ses.closed:
		return true
	default:
		return false
	}
}

// ending says why the client closed the connection.
func (ses *session) ending() error {
	err := ses.nc.LastError()
	if err == nil {
		err = client.ErrConnectionClosed
	}
	return fmt.Errorf("connection to %s lost: %w", ses.server, plain(err))
}

// doubt stops Publish until the stream has been looked at again. The caller
// holds mu.
func (ses *session) doubt(cause error) {
	if s := ses.sink; s.session == ses {
		s.session, s.cause = nil, cause
	}
	select {
	case ses.suspect <- struct{}{}:
	default:
	}
}

// send publishes what is queued until the session is over.
func (ses *session) send() {
	m := newMessage(ses.sink.cfg.Stream.Name)
	for {
		select {
		case it := <-ses.queue:
			ses.publish(m, it)
		case <-ses.gone:
			// over has been here: nothing is queued any more.
			for {
				select {
				case it := <-ses.queue:
					ses.finish(it.done, it.size, ses.err)
				default:
					return
				}
			}
		}
	}
}

// publish makes one attempt. The event is read only here, before PublishMsg
// returns: whatever ends the message in the meantime leaves calling done to us.
func (ses *session) publish(m *message, it item) {
	s := ses.sink
	m.fill(s.subject, it.event)
	err := m.unsendable()
	if err == nil && ses.limit > 0 && int64(m.headerSize()+it.size) > ses.limit {
		err = tooLarge(m, it.size, "maxPayload", ses.limit)
	}
	if err != nil {
		ses.finish(it.done, it.size, err)
		return
	}

	s.mu.Lock()
	if ses.err != nil {
		s.mu.Unlock()
		ses.finish(it.done, it.size, ses.err)
		return
	}
	ses.last++
	n := ses.last
	ses.sending, ses.early = n, early{}
	ses.pending[n] = pending{it.done, it.size, m.msg.Subject, time.Now()}
	s.mu.Unlock()

	m.setReply(ses.inbox, n)
	err = ses.nc.PublishMsg(&m.msg)

	s.mu.Lock()
	ses.sending = 0
	end := ses.early
	if err != nil {
		delete(ses.pending, n)
	}
	s.mu.Unlock()
	switch {
	case end.ended:
		ses.finish(it.done, it.size, end.err)
	case err == nil:
		// The acknowledgement, the sweep or the session's end will come for it.
	case errors.Is(err, client.ErrMaxPayload):
		ses.finish(it.done, it.size, tooLarge(m, it.size, "the server's max_payload", ses.nc.MaxPayload()))
	case errors.Is(err, client.ErrBadSubject), errors.Is(err, client.ErrBadHeaderMsg):
		ses.finish(it.done, it.size, sinks.Permanent(fmt.Errorf("publish to %q: %w", m.msg.Subject, err)))
	default:
		// What the client had buffered may be lost with it: begin anew.
		ses.raw.close()
		ses.finish(it.done, it.size, fmt.Errorf("publish to %s: %w", m.msg.Subject, err))
	}
}

func tooLarge(m *message, body int, name string, limit int64) error {
	header := m.headerSize()
	return sinks.TooLarge(fmt.Errorf("message of %d bytes (%d of headers, %d of body) is larger than %s of %d", header+body, header, body, name, limit))
}

// finish ends an event that is in no map. The caller does not hold mu.
func (ses *session) finish(done func(error), size int, err error) {
	s := ses.sink
	s.mu.Lock()
	s.held.Leave(size)
	s.mu.Unlock()
	done(err)
}

// take removes a message from the map and from the window. It returns nil if
// there is none of that number any more, or if it is being sent and err was left
// to the sender. The caller holds mu, and calls what it gets without.
func (ses *session) take(n uint64, err error) func(error) {
	p, ok := ses.pending[n]
	if !ok {
		return nil
	}
	delete(ses.pending, n)
	if n == ses.sending {
		ses.early = early{true, err}
		return nil
	}
	ses.sink.held.Leave(p.size)
	return p.done
}

// onAck is called by the client for each answer, one after the other.
func (ses *session) onAck(m *client.Msg) {
	n, err := strconv.ParseUint(m.Subject[len(ses.inbox):], 36, 64)
	if err != nil {
		return // not one of ours
	}
	s := ses.sink
	err = parseAck(m, s.cfg.Stream.Name, s.ackPrefix)

	s.mu.Lock()
	if err != nil {
		err = fmt.Errorf("publish to %s: %w", ses.pending[n].subject, err)
		if errors.Is(err, errNoStream) {
			ses.doubt(err)
		}
	}
	if p, ok := ses.pending[n]; ok {
		s.window.answered(n, ses.last, time.Since(p.sent), s.held.Events)
		if err == nil {
			s.largest = max(s.largest, p.size)
		}
		s.ended(p.subject, err)
	}
	done := ses.take(n, err)
	s.mu.Unlock()
	if done != nil {
		done(err)
	}
}

// onError is called by the client for what the server says outside of answers.
func (ses *session) onError(err error) {
	if !errors.Is(err, client.ErrPermissionViolation) {
		if netErr := net.Error(nil); errors.As(err, &netErr) {
			ses.raw.close() // a write failed; what was buffered is lost
		}
		return
	}
	if isDeaf(err) {
		err = withPrefix(err)
	}
	// The server names the subject in its text and nowhere else.
	_, subject, _ := strings.Cut(err.Error(), `Publish to "`)
	subject, _, _ = strings.Cut(subject, `"`)
	s := ses.sink
	var ends []func(error)
	s.mu.Lock()
	ses.denied = err
	for n, p := range ses.pending {
		if p.subject == subject {
			s.ended(subject, err)
			if done := ses.take(n, err); done != nil {
				ends = append(ends, done)
			}
		}
	}
	s.mu.Unlock()
	for _, done := range ends {
		done(err)
	}
}

// sweep looks for overdue acknowledgements until the session is over. A message
// has no timer of its own.
func (ses *session) sweep() {
	tick := time.NewTicker(max(ses.sink.cfg.AckTimeout/8, 5*time.Millisecond))
	defer tick.Stop()
	for {
		select {
		case <-ses.gone:
			return
		case now := <-tick.C:
			ses.expire(now)
		}
	}
}

// expire fails what waited too long for its acknowledgement.
func (ses *session) expire(now time.Time) {
	s := ses.sink
	type end struct {
		done func(error)
		err  error
	}
	var ends []end
	var doubt error
	s.mu.Lock()
	for n, p := range ses.pending {
		if now.Sub(p.sent) < s.cfg.AckTimeout {
			continue
		}
		err := fmt.Errorf("no acknowledgement from stream %s within %v", s.cfg.Stream.Name, s.cfg.AckTimeout)
		doubt = err
		if p.size > s.largest && s.largest > 0 {
			err = fmt.Errorf("%w, of the largest event so far (%s, acknowledged were up to %s): a leaf node's hub that takes less drops it, and the connection (maxPayload)",
				err, config.Size(p.size), config.Size(s.largest))
		}
		s.ended(p.subject, err)
		if done := ses.take(n, err); done != nil {
			ends = append(ends, end{done, err})
		}
	}
	if doubt != nil {
		ses.doubt(doubt)
	}
	s.mu.Unlock()
	for _, e := range ends {
		e.done(e.err)
	}
}

// ended keeps how a message to the subject has ended. The caller holds mu.
func (s *Sink) ended(subject string, err error) {
	switch {
	case err == nil && s.refused.None(): // most of the time
	case err == nil, errors.Is(err, sinks.ErrPermanent):
		s.refused.Ended(subject)
	default:
		s.refused.Note(subject, err, time.Now())
	}
}

// over ends the session for Publish and fails everything that is under way; the
// sender does so for what it has and for what is queued.
func (ses *session) over(err error) {
	s := ses.sink
	var ends []func(error)
	s.mu.Lock()
	ses.err = err
	if s.session == ses {
		s.session = nil
		s.cause = err
	}
	for n := range ses.pending {
		if done := ses.take(n, err); done != nil {
			ends = append(ends, done)
		}
	}
	s.held.Retry()
	s.mu.Unlock()
	close(ses.gone)
	for _, done := range ends {
		done(err)
	}
}
