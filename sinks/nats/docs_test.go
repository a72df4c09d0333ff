package nats_test

import (
	"context"
	"os"
	"strings"
	"testing"

	client "github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/kbridge-io/kbridge/internal/natsserver"
	"github.com/kbridge-io/kbridge/sinks/nats"
)

// fragment is the indented block of docs/NATS.md that begins with the line.
func fragment(t *testing.T, begin string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/NATS.md")
	if err != nil {
		t.Fatal(err)
	}
	const indent = "    "
	_, rest, found := strings.Cut(string(text), "\n"+indent+begin+"\n")
	if !found {
		t.Fatalf("docs/NATS.md has no block that begins with %q", begin)
	}
	block := begin + "\n"
	for line := range strings.Lines(rest) {
		if !strings.HasPrefix(line, indent) {
			break
		}
		block += strings.TrimPrefix(line, indent)
	}
	return block
}

func TestTheLeastPermissionsOfTheDocsAreEnoughAndNoMore(t *testing.T) {
	config := strings.NewReplacer("$KBRIDGE_PASSWORD", "right", "$READER_PASSWORD", "right").Replace(fragment(t, "authorization: {"))
	srv := natsserver.New(t, config)
	c := settings(srv.URL())
	login(t, &c, "kbridge", "right")
	c.InboxPrefix = "_INBOX_kbridge"
	works(t, c)

	c.User, c.InboxPrefix = "reader", "_INBOX_reader"
	ctx, end := context.WithCancel(t.Context())
	defer end()
	nc, err := nats.Dial(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := nats.JetStream(nc, c)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := js.Stream(ctx, "KBRIDGE")
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := stream.OrderedConsumer(ctx, jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	if m, err := consumer.Next(); err != nil || m.Subject() != "k8s.test.core.pods.shop.a" {
		t.Errorf("reading gives %v, %v", m, err)
	}

	// Each line is needed: without it a check finds a gap, or a warning that there was not.
	for _, needed := range []string{`"k8s.>"`, `"$JS.API.STREAM.INFO.KBRIDGE"`, `"$JS.API.STREAM.CREATE.KBRIDGE"`, `"$JS.API.STREAM.NAMES"`, `"$JS.API.INFO"`, `"$SYS.REQ.USER.INFO"`, `"_INBOX_kbridge.>"`} {
		t.Run("without "+needed, func(t *testing.T) {
			srv := natsserver.New(t, strings.Replace(config, needed, `"other"`, 1))
			c := settings(srv.URL())
			login(t, &c, "kbridge", "right")
			c.InboxPrefix = "_INBOX_kbridge"
			if found := checked(t, sinkWith(c)); len(matching(found, "^gap |^warning .* is not known")) == 0 {
				t.Errorf("a check finds %q", found)
			}
		})
	}
}

func TestTheAccountsOfTheDocsReachEachOther(t *testing.T) {
	config := fragment(t, "accounts: {")
	config = strings.Replace(config, "STREAMS: {", "STREAMS: {\n users: [{user: streams, password: right}]", 1)
	config = strings.Replace(config, "KBRIDGE: {", "KBRIDGE: {\n users: [{user: kbridge, password: right, permissions: {publish: [\"JS.streams.API.>\", \"k8s.>\", \"$SYS.REQ.USER.INFO\"]}}]", 1)
	srv := natsserver.New(t, config)
	c := settings(srv.URL())
	login(t, &c, "kbridge", "right")
	c.APIPrefix = "JS.streams.API"
	works(t, c)
	if n := len(messages(t, srv.URL(), "KBRIDGE", client.UserInfo("streams", "right"))); n != 2 {
		t.Errorf("%d messages are stored, want an event and a dead letter", n)
	}
}
