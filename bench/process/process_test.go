//go:build linux

package process

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"os/signal"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
)

// asProgram has the test binary be the program that is measured.
const asProgram = "KBRIDGE_BENCH_TEST_PROGRAM"

func TestMain(m *testing.M) {
	if how := os.Getenv(asProgram); how != "" {
		program(how)
	}
	goleak.VerifyTestMain(m)
}

// program holds 64 MiB, has used some CPU, and serves metrics until SIGTERM.
func program(how string) {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if how == "broken" {
		fmt.Fprintln(os.Stderr, "no such luck")
		os.Exit(3)
	}
	held := make([]byte, 64<<20)
	for began := time.Now(); time.Since(began) < 100*time.Millisecond; {
		for i := range held {
			held[i]++
		}
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		os.Exit(1)
	}
	fmt.Fprintf(os.Stderr, "time=now msg=\"serving metrics and health\" address=%s\n", listener.Addr())
	http.HandleFunc("/metrics", func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprint(w, "# TYPE sent counter\nsent{sink=\"a\",type=\"x\"} 1\nsent{sink=\"a\",type=\"y\"} 2\nsent{sink=\"b\",type=\"x\"} 4\n# TYPE size gauge\nsize 1.5e+06\n")
	})
	http.HandleFunc("/readyz", func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	go func() { _ = http.Serve(listener, nil) }() // it ends with the process
	<-ctx.Done()
	os.Exit(int(held[0] - held[len(held)-1]))
}

func command(how string) *exec.Cmd {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), asProgram+"="+how)
	return cmd
}

func TestAProgramIsMeasuredFromOutside(t *testing.T) {
	p, err := Start(t.Context(), command("serves"))
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	defer http.DefaultClient.CloseIdleConnections()
	if memory, err := p.Memory(); err != nil || memory < 64<<20 {
		t.Errorf("memory is %d, %v: it holds 64 MiB", memory, err)
	}
	if used, err := p.CPU(); err != nil || used < time.Millisecond {
		t.Errorf("CPU is %s, %v", used, err)
	}
	peak := p.Peak()
	if err := p.Quiet(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	if most := peak(); most < 64<<20 {
		t.Errorf("peak is %d", most)
	}
	if settled, err := p.Settled(t.Context(), 300*time.Millisecond, time.Minute); err != nil || settled < 64<<20 {
		t.Errorf("settled is %d, %v", settled, err)
	}
	m, err := p.Scrape(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		labels []string
		want   float64
	}{
		{"sent", nil, 7}, {"sent", []string{"sink", "a"}, 3}, {"sent", []string{"sink", "a", "type", "y"}, 2},
		{"sent", []string{"sink", "c"}, 0}, {"size", nil, 1.5e6}, {"none", nil, 0},
	} {
		if got := m.Sum(c.name, c.labels...); got != c.want {
			t.Errorf("%s %v is %v, want %v", c.name, c.labels, got, c.want)
		}
	}
	if p.Ready(t.Context()) {
		t.Error("ready, in spite of what it says")
	}
	if err := p.Ended(); err != nil {
		t.Error(err)
	}
	if err := p.Stop(); err != nil {
		t.Error(err)
	}
	if p.Ended() == nil {
		t.Error("it has not ended")
	}
	if _, err := p.Memory(); err == nil {
		t.Error("a process that has ended has memory")
	}
}

func TestAProgramThatEndsAtOnceSaysWhy(t *testing.T) {
	_, err := Start(t.Context(), command("broken"))
	if err == nil {
		t.Fatal("no error")
	}
	if want := "no such luck"; !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}
