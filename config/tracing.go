package config

import (
	"net/url"
	"strconv"
)

func (v validator) tracing(path string, t *Tracing) {
	if u, err := url.Parse(t.OTLPEndpoint); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		v.bad(path+".otlpEndpoint", shown(t.OTLPEndpoint), "an http or https URL such as http://otel-collector:4318, without user and password")
	}
	if !(t.SampleRatio > 0 && t.SampleRatio <= 1) {
		v.bad(path+".sampleRatio", strconv.FormatFloat(t.SampleRatio, 'g', -1, 64), "more than 0, and 1 at most")
	}
}
