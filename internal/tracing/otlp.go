package tracing

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"go.opentelemetry.io/otel/exporters/otlp/otlptrace"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// tracesPath is where a collector takes spans, below its endpoint.
const tracesPath = "/v1/traces"

// OTLP returns an exporter to the collector at endpoint, an http or https URL, with OTLP as
// protobuf over HTTP. It contacts nothing yet.
func OTLP(endpoint, version string) (sdk.SpanExporter, error) {
	c, err := newCollector(endpoint, version)
	if err != nil {
		return nil, err
	}
	return otlptrace.New(context.Background(), c)
}

// Check sends the collector nothing, as an export would, and returns why it does not take
// it.
func Check(ctx context.Context, endpoint, version string) error {
	c, err := newCollector(endpoint, version)
	if err != nil {
		return err
	}
	return errors.Join(c.UploadTraces(ctx, nil), c.Stop(ctx))
}

// collector is the other side. The clients that come with OpenTelemetry's exporter link
// gRPC and its gateway, also the one for HTTP, to which this is all there is to do.
type collector struct {
	url, agent string
	client     *http.Client
}

var _ otlptrace.Client = (*collector)(nil)

func newCollector(endpoint, version string) (*collector, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("tracing: %q is no URL of a collector", endpoint)
	}
	if !strings.HasSuffix(u.Path, tracesPath) {
		u = u.JoinPath(tracesPath)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = 1
	return &collector{url: u.String(), agent: "kbridge/" + version, client: &http.Client{Transport: transport}}, nil
}

// Start implements otlptrace.Client.
func (c *collector) Start(context.Context) error { return nil }

// Stop implements otlptrace.Client.
func (c *collector) Stop(context.Context) error {
	c.client.CloseIdleConnections()
	return nil
}

// mostAnswer is how much of an answer is read, in bytes.
const mostAnswer = 64 << 10

// UploadTraces implements otlptrace.Client.
func (c *collector) UploadTraces(ctx context.Context, spans []*tracepb.ResourceSpans) error {
	// The same bytes as an ExportTraceServiceRequest, whose package links gRPC.
	body, err := proto.Marshal(&tracepb.TracesData{ResourceSpans: spans})
	if err != nil {
		return fmt.Errorf("encode spans: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/x-protobuf")
	req.Header.Set("User-Agent", c.agent)
	resp, err := c.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	switch {
	case resp.StatusCode/100 != 2:
		return fmt.Errorf("%s answers %s", c.url, resp.Status)
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", c.url, err)
	}
	return partialSuccess(answer)
}

// partialSuccess reads an ExportTraceServiceResponse, in which a collector says which of
// the spans it has not taken.
func partialSuccess(answer []byte) error {
	r := rejected{reason: "the collector has rejected some"}
	err := eachField(answer, func(n protowire.Number, partial []byte, _ uint64) error {
		if n != 1 {
			return nil
		}
		return eachField(partial, func(n protowire.Number, text []byte, count uint64) error {
			switch n {
			case 1:
				r.spans = int(min(count, queueSpans))
			case 2:
				r.reason = string(text)
			}
			return nil
		})
	})
	if err != nil || r.spans == 0 {
		return nil // an answer that says nothing, or a warning
	}
	return &r
}

// eachField calls do with the fields of a message that are bytes or numbers.
func eachField(b []byte, do func(n protowire.Number, bytes []byte, number uint64) error) error {
	for len(b) > 0 {
		n, kind, size := protowire.ConsumeTag(b)
		if size < 0 {
			return protowire.ParseError(size)
		}
		b = b[size:]
		var text []byte
		var number uint64
		switch kind {
		case protowire.BytesType:
			text, size = protowire.ConsumeBytes(b)
		case protowire.VarintType:
			number, size = protowire.ConsumeVarint(b)
		default:
			size = protowire.ConsumeFieldValue(n, kind, b)
		}
		if size < 0 {
			return protowire.ParseError(size)
		}
		if err := do(n, text, number); err != nil {
			return err
		}
		b = b[size:]
	}
	return nil
}
