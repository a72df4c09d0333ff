package nats

import (
	"context"
	"errors"
	"testing"
	"time"

	client "github.com/nats-io/nats.go"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/internal/check"
	"github.com/kbridge-io/kbridge/internal/natsserver"
)

// A server tells what it refuses beside its answers, and then there is no answer.
func TestAQuestionThatIsRefusedIsNotWaitedFor(t *testing.T) {
	srv := natsserver.New(t, `authorization {users: [{user: a, password: b, permissions: {publish: {deny: "no.>"}}}]}
no_auth_user: a`)
	cfg := config.DefaultNATS()
	cfg.URLs = []string{srv.URL()}
	p := &probe{cfg: cfg, found: &check.Subject{}, patience: time.Hour}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !p.logIn(ctx) {
		t.Fatalf("it can not log in: %v", p.found.Findings)
	}
	defer p.nc.Close()
	silent, err := p.nc.SubscribeSync("yes.>")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = silent.Unsubscribe() }()
	err = p.ask(ctx, func(ctx context.Context) error {
		_, err := p.nc.RequestWithContext(ctx, "no.no", nil)
		return err
	})
	if !errors.Is(err, client.ErrPermissionViolation) {
		t.Errorf("a question that is refused ends with %v", err)
	}
	p.patience = 50 * time.Millisecond
	err = p.ask(ctx, func(ctx context.Context) error {
		_, err := p.nc.RequestWithContext(ctx, "yes.yes", nil)
		return err
	})
	if err == nil || err.Error() != "no answer within 50ms" {
		t.Errorf("one without an answer ends with %v", err)
	}
}
