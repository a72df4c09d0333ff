package main

import (
	"bytes"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
)

// answering is a /readyz that says no so often before it says yes.
func answering(t *testing.T, no int64) string {
	t.Helper()
	server := httptest.NewServer(answers(no))
	t.Cleanup(server.Close)
	return server.URL
}

// encrypted is a /readyz with TLS that says yes, and the file of its certificate's authority.
func encrypted(t *testing.T) (url, ca string) {
	t.Helper()
	server := httptest.NewTLSServer(answers(0))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of clients that do not trust it
	t.Cleanup(server.Close)
	ca = filepath.Join(t.TempDir(), "ca.crt")
	if err := os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw}), 0o600); err != nil {
		t.Fatal(err)
	}
	return server.URL, ca
}

func answers(no int64) http.Handler {
	var asked atomic.Int64
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		if asked.Add(1) <= no {
			w.WriteHeader(http.StatusServiceUnavailable)
			fmt.Fprintln(w, "sink audit: no servers available")
			return
		}
		fmt.Fprintln(w, "ok")
	})
}

func TestReadyPrintsWhatReadyzSaysAndExitsWithIt(t *testing.T) {
	https, ca := encrypted(t)
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ready":                {[]string{"--url", answering(t, 0)}, 0, "ok\n"},
		"not ready":            {[]string{"--url", answering(t, 9)}, exitFailed, "503 Service Unavailable: sink audit: no servers available"},
		"ready in time":        {[]string{"--url", answering(t, 1) + "/", "--within", "1m"}, 0, "ok\n"},
		"unknown authority":    {[]string{"--url", https}, exitFailed, "certificate signed by unknown authority"},
		"known authority":      {[]string{"--url", https, "--ca", ca}, 0, "ok\n"},
		"any authority":        {[]string{"--url", https, "--insecure-skip-tls-verify"}, 0, "ok\n"},
		"no authority":         {[]string{"--url", https, "--ca", ca + ".not"}, exitFailed, "--ca: read CA: open"},
		"nobody there":         {[]string{"--url", "http://127.0.0.1:1"}, exitFailed, "connection refused"},
		"no URL":               {[]string{"--url", "127.0.0.1:8080"}, exitUsage, "expected a URL"},
		"something that isn't": {[]string{"--url", answering(t, 0) + "/other"}, exitFailed, "404"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, log bytes.Buffer
			if code := execute(t.Context(), append([]string{"ready"}, c.args...), &out, &log); code != c.code {
				t.Errorf("exit code %d, want %d", code, c.code)
			}
			if said := out.String() + log.String(); !strings.Contains(said, c.says) {
				t.Errorf("it says %q, want %q", said, c.says)
			}
		})
	}
}
