package nats

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/config"
)

// requestTimeout bounds a question about the stream.
const requestTimeout = 5 * time.Second

// JetStream returns JetStream as the sink's settings have it: that of another domain, or
// under another prefix.
func JetStream(nc *client.Conn, cfg config.NATS) (jetstream.JetStream, error) {
	return jetstream.NewWithAPIPrefix(nc, apiPrefix(cfg))
}

const plainAPI = "$JS.API"

// apiPrefix is what the subjects of JetStream's API begin with.
func apiPrefix(cfg config.NATS) string {
	switch {
	case cfg.APIPrefix != "":
		return cfg.APIPrefix
	case cfg.Domain != "":
		return "$JS." + cfg.Domain + ".API"
	}
	return plainAPI
}

// checkStream returns nil when the stream is there and takes the sink's subjects.
// It makes the stream where it is absent and the configuration says so; one that
// exists is never changed.
func (ses *session) checkStream(ctx context.Context) error {
	s := ses.sink
	name := s.cfg.Stream.Name
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	js, err := JetStream(ses.nc, s.cfg)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, err)
	}
	stream, err := lookUp(ctx, js, &s.cfg)
	if err != nil {
		return fmt.Errorf("look up stream %s: %w", name, ses.reason(err))
	}
	if stream == nil {
		stream, err = js.CreateStream(ctx, streamConfig(s.cfg.Stream))
		if err != nil {
			return fmt.Errorf("create stream %s: %w", name, overlaps(ctx, js, s.cfg.Stream.Subjects, ses.reason(err)))
		}
		s.log.Info("created stream", "stream", name, "subjects", s.cfg.Stream.Subjects)
	}
	notes, err := judge(&s.cfg, stream.CachedInfo(), ses.nc)
	if err != nil {
		return err
	}
	s.warnOnce(notes)
	return nil
}

// lookUp returns the stream, or nil where it is absent and to be created.
func lookUp(ctx context.Context, js jetstream.JetStream, cfg *config.NATS) (jetstream.Stream, error) {
	stream, err := js.Stream(ctx, cfg.Stream.Name)
	switch {
	case errors.Is(err, jetstream.ErrStreamNotFound):
		if cfg.Stream.Create {
			return nil, nil
		}
		return nil, fmt.Errorf("stream %s not found, and the configuration does not let kbridge create it", cfg.Stream.Name)
	case errors.Is(err, client.ErrNoResponders), errors.Is(err, jetstream.ErrJetStreamNotEnabled), errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return nil, fmt.Errorf("%s: %w", noJetStream(cfg, err), err)
	}
	return stream, err
}

// noJetStream says in the configuration's words where there is no JetStream.
func noJetStream(cfg *config.NATS, err error) string {
	switch {
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return "JetStream is not enabled for this account"
	case cfg.Domain != "":
		return fmt.Sprintf("no JetStream answers in the domain %s: is a leaf node cut off, or the domain another one?", cfg.Domain)
	case cfg.APIPrefix != "":
		return fmt.Sprintf("no JetStream answers under %s: does the account import it?", cfg.APIPrefix)
	}
	return "JetStream is not enabled on this server"
}

// codeOverlap is JetStream's refusal of a stream with subjects that another one has.
const codeOverlap = 10065

// overlaps adds to a refusal which streams have the subjects, as far as they are told.
func overlaps(ctx context.Context, js jetstream.JetStream, subjects []string, refusal error) error {
	if api := (*jetstream.APIError)(nil); !errors.As(refusal, &api) || api.ErrorCode != codeOverlap {
		return refusal
	}
	for _, subject := range subjects {
		if names, err := storing(ctx, js, subject); err == nil && len(names) > 0 {
			refusal = fmt.Errorf("%w (%s is stored by %s already)", refusal, subject, strings.Join(names, ", "))
		}
	}
	return refusal
}

// storing are the streams that store something of a subject.
func storing(ctx context.Context, js jetstream.JetStream, subject string) (names []string, err error) {
	lister := js.StreamNames(ctx, jetstream.WithStreamListSubject(subject))
	for name := range lister.Name() {
		names = append(names, name)
	}
	return names, lister.Err()
}

// judge says why the stream can not store the sink's events, or else what is noteworthy
// about it.
func judge(cfg *config.NATS, info *jetstream.StreamInfo, nc *client.Conn) ([]note, error) {
	if err := unusable(info); err != nil {
		return nil, fmt.Errorf("stream %s %w", cfg.Stream.Name, err)
	}
	notes := append(stored(info.Config.Subjects, cfg.Subject), durability(info, nc.ConnectedClusterName())...)
	if most := info.Config.MaxMsgSize; most > 0 && int64(most) < maxPayload(nc, *cfg) {
		notes = append(notes, note{"max_msg_size", fmt.Sprint(most), "-1", "it refuses larger events, which the servers would take"})
	}
	if cfg.Stream.Create {
		notes = append(notes, differences(cfg.Stream, info.Config)...)
	}
	return notes, nil
}

// reason adds what the server said outside of its answer, such as a permission
// that is missing: the question itself only times out then.
func (ses *session) reason(err error) error {
	s := ses.sink
	s.mu.Lock()
	defer s.mu.Unlock()
	denied := ses.denied
	ses.denied = nil
	if denied != nil && errors.Is(err, context.DeadlineExceeded) {
		return denied
	}
	return err
}

// warnOnce logs what is noteworthy about the stream, each time it has changed.
func (s *Sink) warnOnce(notes []note) {
	s.mu.Lock()
	same := slices.Equal(s.notes, notes)
	s.notes = notes
	s.mu.Unlock()
	if same {
		return
	}
	for _, n := range notes {
		s.log.Warn("stream: "+n.text, "stream", s.cfg.Stream.Name, "setting", n.setting, "value", n.value, "expected", n.expected)
	}
}

// note is a remark about one setting of the stream.
type note struct{ setting, value, expected, text string }

func streamConfig(c config.Stream) jetstream.StreamConfig {
	sc := jetstream.StreamConfig{
		Name: c.Name, Subjects: c.Subjects, MaxAge: c.MaxAge, MaxBytes: int64(c.MaxBytes),
		Replicas: max(c.Replicas, 1), Duplicates: c.Duplicates,
		Storage: jetstream.FileStorage, Discard: jetstream.DiscardOld,
		Description: "Kubernetes changes, by kbridge",
		AllowDirect: true,
	}
	if c.MaxBytes == 0 {
		sc.MaxBytes = -1
	}
	if c.Storage == config.StorageMemory {
		sc.Storage = jetstream.MemoryStorage
	}
	if c.Discard == config.DiscardNew {
		sc.Discard = jetstream.DiscardNew
	}
	if c.MaxAge > 0 && sc.Duplicates > c.MaxAge {
		sc.Duplicates = c.MaxAge // the server refuses a longer window
	}
	return sc
}

// unusable says why the stream cannot store the sink's events at all.
func unusable(info *jetstream.StreamInfo) error {
	c := info.Config
	switch {
	case c.Mirror != nil:
		return errors.New("is a mirror: it takes no messages of its own")
	case c.Sealed:
		return errors.New("is sealed: it takes no messages")
	case c.NoAck:
		return errors.New("has no_ack: it would not tell what it has stored")
	}
	return nil
}

// durability lists what lets the stream lose what it has acknowledged.
func durability(info *jetstream.StreamInfo, cluster string) []note {
	c := info.Config
	var notes []note
	if c.Storage == jetstream.MemoryStorage {
		notes = append(notes, note{"storage", "memory", "file", "what is acknowledged is lost when the server restarts"})
	}
	if c.Replicas <= 1 && cluster != "" {
		notes = append(notes, note{"num_replicas", "1", "3", "in a cluster, what is acknowledged is lost with one server"})
	}
	if c.PersistMode == jetstream.AsyncPersistMode {
		notes = append(notes, note{"persist_mode", "async", "default", "what is acknowledged may not be written yet when the server dies"})
	}
	if c.Discard == jetstream.DiscardNew && (c.MaxBytes > 0 || c.MaxMsgs > 0) {
		notes = append(notes, note{"discard", "new", "old", "a full stream refuses events until consumers or limits make room"})
	}
	return notes
}

// differences lists where the stream is not as the configuration would make it.
func differences(want config.Stream, have jetstream.StreamConfig) []note {
	w := streamConfig(want)
	var notes []note
	differ := func(setting string, same bool, have, want any) {
		if !same {
			notes = append(notes, note{setting, fmt.Sprint(have), fmt.Sprint(want), "it differs from the configuration and is left as it is"})
		}
	}
	subjects := func(s []string) []string { return slices.Sorted(slices.Values(s)) }
	differ("subjects", slices.Equal(subjects(have.Subjects), subjects(w.Subjects)), have.Subjects, w.Subjects)
	differ("max_age", have.MaxAge == w.MaxAge, have.MaxAge, w.MaxAge)
	differ("max_bytes", have.MaxBytes == w.MaxBytes || have.MaxBytes <= 0 && w.MaxBytes <= 0, have.MaxBytes, w.MaxBytes)
	differ("num_replicas", max(have.Replicas, 1) == w.Replicas, have.Replicas, w.Replicas)
	differ("storage", have.Storage == w.Storage, have.Storage, w.Storage)
	differ("discard", have.Discard == w.Discard, have.Discard, w.Discard)
	differ("duplicate_window", w.Duplicates == 0 || have.Duplicates == w.Duplicates, have.Duplicates, w.Duplicates)
	return notes
}
