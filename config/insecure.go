package config

import (
	"net"
	"net/url"
	"slices"
	"strings"
)

// insecure warns of what lets somebody on the way to the sink read or be it.
func (w *warnings) insecure(path string, s *Sink) {
	if n := s.NATS; n != nil {
		w.tls(path+".nats.tls", n.TLS)
		if !n.isEncrypted() {
			w.natsLogin(path+".nats", n)
		}
	}
	if k := s.Kafka; k != nil {
		w.tls(path+".kafka.tls", k.TLS)
		if k.SASL != nil {
			w.sasl(path+".kafka.sasl", k)
		}
	}
}

// server warns of a token that somebody on the way to the HTTP server can read.
func (w *warnings) server(path string, s *Server) {
	if s.Address != "" && s.Auth != nil && s.TLS == nil && !isLoopback(s.Address) {
		w.add(path+".auth.tokenFile", "without server.tls the token is sent in clear")
	}
}

func (w *warnings) tls(path string, t *TLS) {
	if t != nil && t.InsecureSkipVerify {
		w.add(path+".insecureSkipVerify", "any certificate is accepted, so whoever is on the way can be the server")
	}
}

func (w *warnings) natsLogin(path string, n *NATS) {
	switch {
	case n.User != "":
		w.add(path+".user", "without tls the password is sent in clear")
	case n.TokenFile != "":
		w.add(path+".tokenFile", "without tls the token is sent in clear")
	case n.Creds != "":
		w.add(path+".creds", "without tls whoever is on the way can use the connection once it is logged in")
	case n.NKey != "":
		w.add(path+".nkey", "without tls whoever is on the way can use the connection once it is logged in")
	}
}

func (w *warnings) sasl(path string, k *Kafka) {
	if u, err := url.Parse(k.SASL.TokenURL); err == nil && u.Scheme == "http" && !isLoopback(u.Host) {
		w.add(path+".tokenURL", "over http the client's secret and the token are sent in clear")
	}
	if k.TLS != nil || !slices.ContainsFunc(k.Brokers, func(b string) bool { return !isLoopback(b) }) {
		return
	}
	switch m := k.SASL.Mechanism; m {
	case SASLPlain:
		w.add(path, "PLAIN without tls sends the password in clear")
	case SASLOAuthBearer:
		w.add(path, "OAUTHBEARER without tls sends the token in clear")
	default:
		w.add(path, "%s without tls lets whoever is on the way use the connection once it is logged in", m)
	}
}

// isEncrypted says that no server is spoken to in clear over a network.
func (n *NATS) isEncrypted() bool {
	return n.TLS != nil || !slices.ContainsFunc(n.URLs, func(s string) bool {
		u, err := url.Parse(s)
		return err == nil && u.Scheme != "tls" && u.Scheme != "wss" && !isLoopback(u.Host)
	})
}

// isLoopback says of a host, with or without a port, that it is this machine.
func isLoopback(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
