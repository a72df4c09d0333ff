package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/sinks"
)

// Check notes what a start would find at the sink's servers: whether it can log in, the
// stream, which it judges as a start does, and whether the samples' events may be
// published. It creates and publishes nothing. It returns by the end of ctx.
func Check(ctx context.Context, sink config.Sink, samples []sinks.Sample, found *check.Subject) {
	subject, err := event.NATSSubject(sink.NATS.Subject)
	if err != nil {
		found.Gap("subject: %v", err)
		return
	}
	p := &probe{cfg: *sink.NATS, sink: sink, found: found, patience: requestTimeout}
	if !p.logIn(ctx) {
		return
	}
	defer p.nc.Close()
	js, err := JetStream(p.nc, p.cfg)
	if err != nil {
		found.Gap("JetStream: %v", err)
		return
	}
	p.js = js
	p.identify(ctx)
	if err := p.unheard(); err != nil {
		found.Gap("it can not be answered: %v", err)
		return
	}
	found.OK("logged in at %s%s: nats-server %s, which takes messages of up to %s", p.server, p.user(), p.nc.ConnectedServerVersion(), config.Size(p.nc.MaxPayload()))
	p.sizes()
	published := patterns(subject, samples)
	created := p.stream(ctx, published)
	p.publishing(published, "events")
	if sink.DeadLetter.Subject != "" {
		p.deadLetters(ctx, created)
	}
}

// probe is a check of one sink. One goroutine uses it, save for what mu guards.
type probe struct {
	sink   config.Sink
	cfg    config.NATS
	found  *check.Subject
	server server
	nc     *client.Conn
	js     jetstream.JetStream
	who    *userInfo // nil: the server does not say
	// mapped says that the account maps subjects, if all is well. Permissions are then for
	// what they are mapped to.
	mapped bool
	// patience is how long a question may take.
	patience time.Duration

	mu     sync.Mutex
	denied error              // the last refusal that the server told outside of an answer
	deaf   error              // the refusal to let it hear answers
	end    context.CancelFunc // of the question that is being asked
}

// logIn connects to each server, and keeps one connection. It returns false where there is
// none.
func (p *probe) logIn(ctx context.Context) bool {
	urls, err := parseURLs(p.cfg.URLs)
	if err != nil {
		p.found.Gap("urls: %v", err)
		return false
	}
	s := &Sink{cfg: p.cfg, urls: urls}
	conns, errs := make([]*client.Conn, len(urls)), make([]error, len(urls))
	var all sync.WaitGroup
	for i, srv := range urls {
		all.Go(func() {
			conns[i], errs[i] = s.dialReader(ctx, srv, []client.Option{client.Name("kbridge/" + p.sink.Name + " check"), client.ErrorHandler(p.onError)})
		})
	}
	all.Wait()
	for i, nc := range conns {
		switch {
		case nc == nil:
		case p.nc == nil:
			p.nc, p.server = nc, urls[i]
		default:
			nc.Close()
		}
	}
	for i, err := range errs {
		if err == nil {
			continue
		}
		note := p.found.Gap
		if p.nc != nil {
			note = p.found.Warn // another one does
		}
		note("connect to %s: %v", urls[i], check.Reason(ctx, plain(err)))
	}
	return p.nc != nil
}

func (p *probe) onError(_ *client.Conn, _ *client.Subscription, err error) {
	if !errors.Is(err, client.ErrPermissionViolation) {
		return // it ends the question, too
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.denied = err
	if isDeaf(err) {
		p.deaf = withPrefix(err)
	}
	if p.end != nil {
		p.end()
	}
}

// unheard is why no question is answered, or nil. It is known after the first one.
func (p *probe) unheard() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.deaf
}

// ask asks one question. The server tells a refusal outside of its answers, of which there
// is none then.
func (p *probe) ask(ctx context.Context, question func(context.Context) error) error {
	limited, cancel := context.WithTimeoutCause(ctx, p.patience, fmt.Errorf("no answer within %s", p.patience))
	defer cancel()
	set := func(end context.CancelFunc) (denied error) {
		p.mu.Lock()
		defer p.mu.Unlock()
		denied, p.denied, p.end = p.denied, nil, end
		return denied
	}
	_ = set(cancel) // what was denied before is another question's
	err := question(limited)
	switch denied := set(nil); {
	case err == nil:
		return nil
	case denied != nil:
		return denied
	default:
		return check.Reason(limited, err)
	}
}

// stream judges the stream, or says which one a start would create. created are the
// subjects of that.
func (p *probe) stream(ctx context.Context, published []pattern) (created []string) {
	name := p.cfg.Stream.Name
	var stream jetstream.Stream
	err := p.ask(ctx, func(ctx context.Context) (err error) {
		stream, err = lookUp(ctx, p.js, &p.cfg)
		return err
	})
	if err != nil {
		p.found.Gap("look up stream %s: %v", name, err)
		return nil
	}
	if stream == nil {
		p.creation(ctx)
		return p.cfg.Stream.Subjects
	}
	info := stream.CachedInfo()
	if p.judged(info) {
		p.storage(info.Config.Subjects, published)
		p.mapped = !storesSome(info.Config.Subjects, p.cfg.Subject)
		p.found.OK("stream %s stores %s: %d messages, %s", name, strings.Join(info.Config.Subjects, ", "), info.State.Msgs, config.Size(info.State.Bytes))
	}
	return nil
}

// storage says which of the samples' subjects the stream does not store, where the
// template alone does not tell.
func (p *probe) storage(subjects []string, published []pattern) {
	if len(stored(subjects, p.cfg.Subject)) > 0 {
		return // it has been said
	}
	for _, s := range published {
		is := covers
		if s.loose {
			is = meets
		}
		if !slices.ContainsFunc(subjects, func(filter string) bool { return is(filter, s.subject) }) {
			p.found.Warn("stream %s does not store all of %s: unless the account maps subjects, such events are not stored", p.cfg.Stream.Name, s.subject)
		}
	}
}

// sizes says what can not be known of the largest message.
func (p *probe) sizes() {
	switch {
	case p.cfg.MaxPayload > config.Size(p.nc.MaxPayload()):
		p.found.Warn("maxPayload is %s, and the server takes no more than %s", p.cfg.MaxPayload, config.Size(p.nc.MaxPayload()))
	case p.cfg.MaxPayload == 0 && p.cfg.Domain != "":
		p.found.Warn("how large a message the domain %s takes is not known here: where that is less, set maxPayload", p.cfg.Domain)
	}
}

// judged notes what a start would say of the stream, and returns whether it would use it.
func (p *probe) judged(info *jetstream.StreamInfo) bool {
	notes, err := judge(&p.cfg, info, p.nc)
	if err != nil {
		p.found.Gap("%v", err)
	}
	for _, n := range notes {
		p.found.Warn("stream %s: %s (%s is %s, expected %s)", p.cfg.Stream.Name, n.text, n.setting, n.value, n.expected)
	}
	return err == nil
}

// creation says which stream a start would create, and what keeps it from it as far as
// that can be known.
func (p *probe) creation(ctx context.Context) {
	c := streamConfig(p.cfg.Stream)
	maxBytes := "no limit of bytes"
	if c.MaxBytes > 0 {
		maxBytes = config.Size(c.MaxBytes).String()
	}
	maxAge := "for ever"
	if c.MaxAge > 0 {
		maxAge = "for " + c.MaxAge.String()
	}
	what := fmt.Sprintf("stream %s for %s: %s, kept %s, %s storage, replicas: %d, when full it discards the %s, duplicates are known for %s",
		c.Name, strings.Join(c.Subjects, ", "), maxBytes, maxAge, strings.ToLower(c.Storage.String()), c.Replicas, strings.TrimPrefix(strings.ToLower(c.Discard.String()), "discard"), c.Duplicates)
	gaps := p.obstacles(ctx, &c)
	subject := apiPrefix(p.cfg) + ".STREAM.CREATE." + c.Name
	may := p.may(subject)
	if p.cfg.Domain != "" { // of its own domain a server looks at the plain subject
		may = max(may, p.may(plainAPI+".STREAM.CREATE."+c.Name))
	}
	switch {
	case may == mayNot || may == mayInPart:
		gaps = append(gaps, fmt.Sprintf("it may not publish to %s", subject))
	case may == notKnown && len(gaps) == 0:
		p.found.Warn("a start would create %s; whether it may is not known: %s", what, notTold)
	}
	switch {
	case len(gaps) > 0:
		p.found.Gap("a start would create %s; but %s", what, strings.Join(gaps, ", and "))
	case may == mayAll:
		p.found.OK("a start would create %s", what)
	}
	p.judged(&jetstream.StreamInfo{Config: c})
}

// obstacles are what the server would say against a new stream.
func (p *probe) obstacles(ctx context.Context, c *jetstream.StreamConfig) (gaps []string) {
	if c.Replicas > 1 && p.nc.ConnectedClusterName() == "" {
		gaps = append(gaps, fmt.Sprintf("the server is in no cluster, and there can be one replica, not %d", c.Replicas))
	}
	for _, subject := range c.Subjects {
		names, err := p.storing(ctx, subject)
		switch {
		case err != nil:
			gaps = append(gaps, fmt.Sprintf("whether another stream stores %s can not be found out: %v", subject, err))
		case len(names) > 0:
			gaps = append(gaps, fmt.Sprintf("%s is stored by %s already", subject, strings.Join(names, ", ")))
		}
	}
	var account *jetstream.AccountInfo
	if err := p.ask(ctx, func(ctx context.Context) (err error) {
		account, err = p.js.AccountInfo(ctx)
		return err
	}); err != nil {
		return append(gaps, fmt.Sprintf("the account's limits can not be read: %v", err))
	}
	tier, tiered := account.Tiers[fmt.Sprintf("R%d", c.Replicas)]
	if !tiered {
		tier = account.Tier
	}
	return append(gaps, exceeded(tier, c)...)
}

// exceeded are the account's limits that do not leave room for a stream. One below zero is
// none.
func exceeded(tier jetstream.Tier, c *jetstream.StreamConfig) (gaps []string) {
	l := tier.Limits
	if l.MaxStreams > 0 && tier.Streams >= l.MaxStreams {
		gaps = append(gaps, fmt.Sprintf("the account has %d streams and may have no more", tier.Streams))
	}
	most, reserved, each := l.MaxStore, tier.ReservedStore, l.StoreMaxStreamBytes
	if c.Storage == jetstream.MemoryStorage {
		most, reserved, each = l.MaxMemory, tier.ReservedMemory, l.MemoryMaxStreamBytes
	}
	if needs := max(c.MaxBytes, 0) * int64(c.Replicas); most >= 0 && (most == 0 || int64(reserved)+needs > most) {
		gaps = append(gaps, fmt.Sprintf("the account may store %s, of which %s are reserved", config.Size(most), config.Size(reserved)))
	}
	if each > 0 && c.MaxBytes > each {
		gaps = append(gaps, fmt.Sprintf("a stream of the account may store %s", config.Size(each)))
	}
	if l.MaxBytesRequired && c.MaxBytes <= 0 {
		gaps = append(gaps, "a stream of the account has to have a limit (stream.maxBytes)")
	}
	return gaps
}

// storing are the streams that store something of a subject.
func (p *probe) storing(ctx context.Context, subject string) (names []string, err error) {
	err = p.ask(ctx, func(ctx context.Context) error {
		names, err = storing(ctx, p.js, subject)
		return err
	})
	return names, err
}

// deadLetters says whether dead letters would be stored. created are the subjects of a
// stream that is yet to come.
func (p *probe) deadLetters(ctx context.Context, created []string) {
	subject := p.sink.DeadLetter.Subject
	names, err := p.storing(ctx, subject)
	switch {
	case err != nil:
		p.found.Gap("dead letters: which stream stores %s can not be found out: %v", subject, err)
	case len(names) > 0:
		p.found.OK("dead letters: stream %s stores %s", strings.Join(names, ", "), subject)
	case slices.ContainsFunc(created, func(filter string) bool { return covers(filter, subject) }):
		p.found.OK("dead letters: the created stream would store %s", subject)
	default:
		p.found.Gap("dead letters: no stream stores %s", subject)
	}
	p.publishing([]pattern{{subject: subject}}, "dead letters")
}
