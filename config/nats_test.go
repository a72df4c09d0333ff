package config

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestHowJetStreamIsAskedIsChecked(t *testing.T) {
	t.Parallel()
	const (
		aPrefix = "the beginning of a subject without wildcards, such as $JS.hub.API"
		anInbox = "the beginning of a subject without wildcards, such as _INBOX_kbridge"
		aDomain = "a JetStream domain, such as hub: one token of a subject"
		aSize   = "0, or 4KiB to 64MiB"
	)
	for text, want := range map[string][]Problem{
		nats("inboxPrefix: _INBOX_kbridge", "domain: hub", "maxPayload: 1MiB"): nil,
		nats("inboxPrefix: answers.kbridge", "apiPrefix: $JS.hub.API"):         nil,
		nats("maxPayload: 0"):                         nil,
		nats("inboxPrefix: _INBOX.>"):                 {{"sinks[0].nats.inboxPrefix", 6, `"_INBOX.>"`, anInbox}},
		nats("inboxPrefix: _INBOX."):                  {{"sinks[0].nats.inboxPrefix", 6, `"_INBOX."`, anInbox}},
		nats("inboxPrefix: $SYS"):                     {{"sinks[0].nats.inboxPrefix", 6, `"$SYS"`, anInbox}},
		nats("inboxPrefix: 'a b'"):                    {{"sinks[0].nats.inboxPrefix", 6, `"a b"`, anInbox}},
		nats("inboxPrefix: 'i.{cluster}'"):            {{"sinks[0].nats.inboxPrefix", 6, `"i.{cluster}"`, anInbox}},
		nats("domain: a.b"):                           {{"sinks[0].nats.domain", 6, `"a.b"`, aDomain}},
		nats("domain: '*'"):                           {{"sinks[0].nats.domain", 6, `"*"`, aDomain}},
		nats("apiPrefix: JS.API.>"):                   {{"sinks[0].nats.apiPrefix", 6, `"JS.API.>"`, aPrefix}},
		nats("apiPrefix: JS..API"):                    {{"sinks[0].nats.apiPrefix", 6, `"JS..API"`, aPrefix}},
		nats("domain: hub", "apiPrefix: $JS.hub.API"): {{"sinks[0].nats", 4, "domain and apiPrefix", "one of the two: domain: hub is apiPrefix: $JS.hub.API"}},
		nats("maxPayload: 100"):                       {{"sinks[0].nats.maxPayload", 6, "100", aSize}},
		nats("maxPayload: 65MiB"):                     {{"sinks[0].nats.maxPayload", 6, "65MiB", aSize}},
	} {
		var got []Problem
		_, err := Parse("f", []byte(text))
		if e := (*Error)(nil); errors.As(err, &e) {
			got = e.Problems
		} else if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("in\n%s\n%s", text, diff)
		}
	}
}
