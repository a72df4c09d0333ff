package main

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"
)

// readyOptions are the flags of `kbridge ready`.
type readyOptions struct {
	url    string
	within time.Duration
}

// readyPause is the time between two questions.
const readyPause = 500 * time.Millisecond

func readyCommand(stdout io.Writer) *cobra.Command {
	var o readyOptions
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Asks a running kbridge whether it watches and delivers",
		Long: `Asks the /readyz of a running kbridge, prints its answer, and exits with 1 where that
is not ok. It is for places that have no other client, such as a container's health check.`,
		Example: `  kbridge ready
  kbridge ready --url http://kbridge.observability:8080 --within 1m`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u, err := url.Parse(o.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usageError{fmt.Errorf("--url %q: expected a URL such as http://127.0.0.1:8080", o.url)}
			}
			return o.await(cmd.Context(), stdout)
		},
	}
	cmd.Flags().StringVar(&o.url, "url", "http://127.0.0.1:8080", "where kbridge listens: its server.address")
	cmd.Flags().DurationVar(&o.within, "within", 0, "how long to ask again for (default: once)")
	return cmd
}

// await asks until the answer is ok or the time is over.
func (o readyOptions) await(ctx context.Context, stdout io.Writer) error {
	began := time.Now()
	for {
		err := o.ask(ctx)
		if err == nil {
			_, err := fmt.Fprintln(stdout, "ok")
			return err
		}
		if time.Since(began) >= o.within {
			return fmt.Errorf("kbridge at %s is not ready: %w", o.url, err)
		}
		select {
		case <-time.After(readyPause):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// ask asks once, on a connection of its own: a later one may reach another pod.
func (o readyOptions) ask(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.url, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		return fmt.Errorf("%s: %s", resp.Status, strings.TrimSpace(string(answer)))
	}
	return nil
}
