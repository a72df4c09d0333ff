package nats

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/sinks"
)

// isDeaf says that an account may not subscribe to where it wants to be answered: the
// server names the subject in its text and nowhere else.
func isDeaf(err error) bool { return strings.Contains(err.Error(), "Subscription to ") }

// withPrefix says what to do about that.
func withPrefix(err error) error {
	return fmt.Errorf("%w (set inboxPrefix to what the account may subscribe to)", err)
}

// pattern is a subject with wildcards.
type pattern struct {
	subject string
	loose   bool // it stands for more than what is published to
}

// patterns are the subjects of the samples, with a wildcard for each token that is not
// known whole.
func patterns(template *event.Template, samples []sinks.Sample) (all []pattern) {
	for _, s := range samples {
		var p pattern
		tokens := strings.Split(template.Pattern(s.Event, s.Unknown), ".")
		for i, t := range tokens {
			if strings.Contains(t, "*") && t != "*" {
				tokens[i], p.loose = "*", true
			}
		}
		p.subject = strings.Join(tokens, ".")
		if !slices.Contains(all, p) {
			all = append(all, p)
		}
	}
	return all
}

// publishing says whether what may be published to each of the subjects.
func (p *probe) publishing(subjects []pattern, what string) {
	if len(subjects) == 0 {
		return
	}
	if p.who == nil {
		p.found.Warn("whether it may publish %s is not known: %s", what, notTold)
		return
	}
	before := len(p.found.Findings)
	gap := p.found.Gap
	if p.mapped {
		gap = p.found.Warn
	}
	var all []string
	for _, s := range subjects {
		all = append(all, s.subject)
		switch may := p.may(s.subject); {
		case may == mayNot:
			gap("it may not publish %s to %s (%s)", what, s.subject, p.who)
		case may == mayInPart && s.loose:
			p.found.Warn("it may not publish to all of %s, of which %s are a part (%s)", s.subject, what, p.who)
		case may == mayInPart:
			gap("it may not publish %s to all of %s (%s)", what, s.subject, p.who)
		}
	}
	if len(p.found.Findings) == before {
		p.found.OK("it may publish %s to %s", what, strings.Join(all, ", "))
	}
}

// userInfo is who the server takes the client for.
type userInfo struct {
	User        string `json:"user"`
	Permissions struct {
		Publish struct {
			Allow []string `json:"allow"`
			Deny  []string `json:"deny"`
		} `json:"publish"`
	} `json:"permissions"`
}

// String says what may be published to.
func (u *userInfo) String() string {
	allow, deny := u.Permissions.Publish.Allow, u.Permissions.Publish.Deny
	if len(allow) == 0 {
		allow = []string{">"}
	}
	text := "allowed: " + strings.Join(allow, ", ")
	if len(deny) > 0 {
		text += "; denied: " + strings.Join(deny, ", ")
	}
	return text
}

// Where a server of version 2.10 or newer tells a client who it is. A client that may
// publish to single subjects only needs this one among them.
const userInfoSubject = "$SYS.REQ.USER.INFO"

const notTold = "the server does not tell its permissions, as it does where it may publish to " + userInfoSubject

// identify asks who we are, and what we may.
func (p *probe) identify(ctx context.Context) {
	var answer struct {
		Error json.RawMessage `json:"error"`
		Data  userInfo        `json:"data"`
	}
	if err := p.ask(ctx, func(ctx context.Context) error {
		m, err := p.nc.RequestWithContext(ctx, userInfoSubject, nil)
		if err != nil {
			return err
		}
		return json.Unmarshal(m.Data, &answer)
	}); err == nil && answer.Error == nil {
		p.who = &answer.Data
	}
}

func (p *probe) user() string {
	if p.who == nil || p.who.User == "" {
		return ""
	}
	return " as " + p.who.User
}

// verdict is whether something may be published to a subject.
type verdict int

const (
	notKnown verdict = iota
	mayNot
	mayInPart // of the subjects that the pattern stands for
	mayAll
)

func (p *probe) may(subject string) verdict {
	if p.who == nil {
		return notKnown
	}
	allow, deny := p.who.Permissions.Publish.Allow, p.who.Permissions.Publish.Deny
	has := func(filters []string, is func(filter, subject string) bool) bool {
		return slices.ContainsFunc(filters, func(f string) bool { return is(f, subject) })
	}
	switch {
	case has(deny, covers), len(allow) > 0 && !has(allow, meets):
		return mayNot
	case has(deny, meets), len(allow) > 0 && !has(allow, covers):
		return mayInPart
	}
	return mayAll
}

// covers says that the filter stands for all subjects that the pattern stands for, which
// has as many tokens as each of them.
func covers(filter, pattern string) bool {
	return compare(filter, pattern, func(f, p string) bool { return f == "*" || f == p })
}

// meets says that the filter stands for one of the subjects at least.
func meets(filter, pattern string) bool {
	return compare(filter, pattern, func(f, p string) bool { return f == "*" || p == "*" || f == p })
}

func compare(filter, pattern string, same func(f, p string) bool) bool {
	f, p := strings.Split(filter, "."), strings.Split(pattern, ".")
	for i, token := range f {
		switch {
		case i == len(p):
			return false
		case token == ">":
			return true
		case !same(token, p[i]):
			return false
		}
	}
	return len(f) == len(p)
}
