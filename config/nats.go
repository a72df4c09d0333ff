package config

import (
	"errors"
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

func (v validator) nats(path string, n *NATS) {
	at := func(key string) string { return path + "." + key }
	if len(n.URLs) == 0 {
		v.bad(at("urls"), "none", "at least one URL such as nats://nats:4222")
	}
	kind := map[bool]bool{} // whether over WebSocket
	for i, u := range n.URLs {
		if scheme, ok := v.url(item(at("urls"), i), u); ok {
			kind[strings.HasPrefix(scheme, "ws")] = true
		}
	}
	if len(kind) > 1 {
		v.bad(at("urls"), "WebSocket URLs beside others", "only ws and wss, or only nats and tls")
	}
	v.stream(at("stream"), &n.Stream)
	if err := checkSubjectTemplate(n.Subject); err != nil {
		v.bad(at("subject"), show(n.Subject), fmt.Sprintf("a subject such as %s (%v)", DefaultNATS().Subject, err))
	} else {
		v.covered(path, n)
	}

	var kinds []string
	for _, k := range [][2]string{{"creds", n.Creds}, {"nkey", n.NKey}, {"tokenFile", n.TokenFile}, {"user", n.User + n.PasswordFile}} {
		if k[1] != "" {
			kinds = append(kinds, k[0])
		}
	}
	if len(kinds) > 1 {
		v.bad(path, strings.Join(kinds, " and "), "one kind of authentication")
	}
	v.together(path, "user", n.User, "passwordFile", n.PasswordFile)
	if n.TLS != nil {
		v.together(at("tls"), "cert", n.TLS.Cert, "key", n.TLS.Key)
	}
	v.timeout(at("ackTimeout"), n.AckTimeout)
	v.api(path, n)
	if m := n.MaxPayload; m != 0 && (m < minPayload || m > maxPayload) {
		v.bad(at("maxPayload"), m.String(), fmt.Sprintf("0, or %s to %s", Size(minPayload), Size(maxPayload)))
	}
}

// A message has headers, and in binary format some dozen of them. No server takes more
// than the largest.
const (
	minPayload = 4 << 10
	maxPayload = 64 << 20
)

// api checks how JetStream is asked, and where it answers.
func (v validator) api(path string, n *NATS) {
	at := func(key string) string { return path + "." + key }
	if p := n.InboxPrefix; p != "" && (checkFixed(p) != nil || strings.HasPrefix(p, "$")) {
		v.bad(at("inboxPrefix"), show(p), "the beginning of a subject without wildcards, such as _INBOX_kbridge")
	}
	if d := n.Domain; d != "" && (checkFixed(d) != nil || strings.Contains(d, ".")) {
		v.bad(at("domain"), show(d), "a JetStream domain, such as hub: one token of a subject")
	}
	if p := n.APIPrefix; p != "" && checkFixed(p) != nil {
		v.bad(at("apiPrefix"), show(p), "the beginning of a subject without wildcards, such as $JS.hub.API")
	}
	if n.Domain != "" && n.APIPrefix != "" {
		v.bad(path, "domain and apiPrefix", "one of the two: domain: hub is apiPrefix: $JS.hub.API")
	}
}

// checkFixed checks a part of a subject that is taken as it stands.
func checkFixed(s string) error {
	if strings.ContainsAny(s, "*>{}") {
		return errors.New("wildcards and braces are not allowed")
	}
	return checkTokens(s)
}

// url checks a server's URL and returns its scheme.
func (v validator) url(path, s string) (scheme string, ok bool) {
	u, err := url.Parse(s)
	switch {
	case strings.Contains(s, "@"):
		// Also where it does not parse: what stands before the @ is a secret.
		v.bad(path, show(s), "a URL without user and password: use user and passwordFile, tokenFile, creds or nkey")
	case err != nil || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) || u.Hostname() == "":
		v.bad(path, show(s), "a URL such as nats://nats:4222, tls://…, ws://… or wss://…")
	case u.Port() != "" && (!isPort(u.Port()) || u.Port() == "0") || strings.HasSuffix(u.Host, ":"):
		v.bad(path, show(s), "a port from 1 to 65535")
	case u.RawQuery != "" || u.Fragment != "":
		v.bad(path, show(s), "a URL without ? and #")
	default:
		return u.Scheme, true
	}
	return "", false
}

// minAge is the least that JetStream takes for maxAge and duplicates.
const minAge = 100 * time.Millisecond

func (v validator) stream(path string, s *Stream) {
	at := func(key string) string { return path + "." + key }
	if s.Name == "" || strings.ContainsAny(s.Name, ".*>/\\") || checkTokens(s.Name) != nil || len(s.Name) > 255 {
		v.bad(at("name"), shown(s.Name), "a stream's name: no spaces, '.', '*', '>', '/' and '\\'")
	}
	if len(s.Subjects) == 0 && s.Create {
		v.bad(at("subjects"), "none", "at least one")
	}
	for i, p := range s.Subjects {
		if err := checkSubjectPattern(p); err != nil {
			v.bad(item(at("subjects"), i), show(p), fmt.Sprintf("a subject such as k8s.> (%v)", err))
		}
	}
	v.unique(at("subjects"), s.Subjects)
	if s.MaxAge != 0 && s.MaxAge < minAge {
		v.bad(at("maxAge"), s.MaxAge.String(), "0 or at least 100ms")
	}
	if s.MaxBytes < 0 {
		v.bad(at("maxBytes"), s.MaxBytes.String(), "0 or more")
	}
	if s.Replicas < 1 || s.Replicas > 5 {
		v.bad(at("replicas"), strconv.Itoa(s.Replicas), "1 to 5")
	}
	v.enum(at("storage"), string(s.Storage), s.Storage)
	v.enum(at("discard"), string(s.Discard), s.Discard)
	if s.Duplicates < minAge {
		v.bad(at("duplicates"), s.Duplicates.String(), "at least 100ms")
	} else if s.MaxAge > 0 && s.Duplicates > s.MaxAge {
		v.bad(at("duplicates"), s.Duplicates.String(), "at most maxAge, which is "+s.MaxAge.String())
	}
}

// covered notes a subject that the stream to be created certainly misses.
func (v validator) covered(path string, n *NATS) {
	subjects := n.Stream.Subjects
	wrong := func(p string) bool { return checkSubjectPattern(p) != nil }
	if !n.Stream.Create || len(subjects) == 0 || slices.ContainsFunc(subjects, wrong) || v.rejectedIn(path+".stream.subjects") {
		return
	}
	subject := n.Subject
	if v.c.Cluster != "" {
		// As events escape it: a dot is no token's part.
		subject = strings.ReplaceAll(subject, "{cluster}", strings.ReplaceAll(v.c.Cluster, ".", "%2E"))
	}
	if !slices.ContainsFunc(subjects, func(p string) bool { return mayCover(p, subject) }) {
		v.bad(path+".subject", show(n.Subject), fmt.Sprintf("a subject that the stream stores: %s", strings.Join(subjects, ", ")))
	}
}
