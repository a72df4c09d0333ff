package main

import (
	"bytes"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
)

// answering is a /readyz that says no so often before it says yes.
func answering(t *testing.T, no int64) string {
	t.Helper()
	var asked atomic.Int64
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
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
	}))
	t.Cleanup(server.Close)
	return server.URL
}

func TestReadyPrintsWhatReadyzSaysAndExitsWithIt(t *testing.T) {
	for name, c := range map[string]struct {
		args []string
		code int
		says string
	}{
		"ready":                {[]string{"--url", answering(t, 0)}, 0, "ok\n"},
		"not ready":            {[]string{"--url", answering(t, 9)}, exitFailed, "503 Service Unavailable: sink audit: no servers available"},
		"ready in time":        {[]string{"--url", answering(t, 1) + "/", "--within", "1m"}, 0, "ok\n"},
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
