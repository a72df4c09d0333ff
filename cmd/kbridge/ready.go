package main

import (
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/sinks/credentials"
)

// readyOptions are the flags of `kbridge ready`.
type readyOptions struct {
	url      string
	within   time.Duration
	ca       string
	insecure bool
}

// readyPause is the time between two questions.
const readyPause = 500 * time.Millisecond

func readyCommand(stdout io.Writer) *cobra.Command {
	var o readyOptions
	cmd := &cobra.Command{
		Use:   "ready",
		Short: "Asks a running kbridge whether it watches and delivers",
		Long: `Asks the /readyz of a running kbridge, prints its answer, and exits with 1 where that
is not ok. It is for places that have no other client, such as a container's health check.
It needs neither a token nor a certificate, whatever the configuration asks for elsewhere.`,
		Example: `  kbridge ready
  kbridge ready --url http://kbridge.observability:8080 --within 1m
  kbridge ready --url https://kbridge.observability:8080 --ca /etc/ssl/company.crt`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if u, err := url.Parse(o.url); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				return usageError{fmt.Errorf("--url %q: expected a URL such as http://127.0.0.1:8080", o.url)}
			}
			settings, err := o.tls()
			if err != nil {
				return err
			}
			return o.await(cmd.Context(), settings, stdout)
		},
	}
	cmd.Flags().StringVar(&o.url, "url", "http://127.0.0.1:8080", "where kbridge listens: its server.address")
	cmd.Flags().DurationVar(&o.within, "within", 0, "how long to ask again for (default: once)")
	cmd.Flags().StringVar(&o.ca, "ca", "", "file of the authorities that may have signed the server's certificate (default: the system's)")
	cmd.Flags().BoolVar(&o.insecure, "insecure-skip-tls-verify", false, "accept any certificate, as the kubelet's probes do: nothing secret is sent")
	return cmd
}

// tls are the settings for an https URL.
func (o readyOptions) tls() (*tls.Config, error) {
	settings, err := credentials.TLS(&config.TLS{CA: o.ca, InsecureSkipVerify: o.insecure})
	if err != nil {
		return nil, fmt.Errorf("--ca: %w", err)
	}
	return settings, nil
}

// await asks until the answer is ok or the time is over.
func (o readyOptions) await(ctx context.Context, settings *tls.Config, stdout io.Writer) error {
	began := time.Now()
	for {
		err := o.ask(ctx, settings)
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
func (o readyOptions) ask(ctx context.Context, settings *tls.Config) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, strings.TrimSuffix(o.url, "/")+"/readyz", nil)
	if err != nil {
		return err
	}
	resp, err := (&http.Transport{DisableKeepAlives: true, TLSClientConfig: settings}).RoundTrip(req)
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
