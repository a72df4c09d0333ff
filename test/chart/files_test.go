package chart

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
)

// TestEachFileThatTheConfigurationMayNameHasToBeMounted finds those keys in the configuration's schema, so that a new one
// is not forgotten.
func TestEachFileThatTheConfigurationMayNameHasToBeMounted(t *testing.T) {
	t.Parallel()
	type schema struct {
		Properties map[string]json.RawMessage
		Items      json.RawMessage
	}
	parse := func(data []byte) (s schema) {
		if err := json.Unmarshal(data, &s); err != nil {
			t.Fatal(err)
		}
		return s
	}
	data, err := os.ReadFile("../../config/schema.json")
	if err != nil {
		t.Fatal(err)
	}
	sink := parse(parse(parse(data).Properties["sinks"]).Items)
	var files [][]string // from the sink on, or from server on
	var walk func(data json.RawMessage, path []string)
	walk = func(data json.RawMessage, path []string) {
		for name, property := range parse(data).Properties {
			path := append(slices.Clone(path), name)
			if strings.HasSuffix(name, "File") || slices.Contains([]string{"creds", "nkey", "ca", "cert", "key"}, name) {
				files = append(files, path)
			}
			walk(property, path)
		}
	}
	for _, kind := range []string{"nats", "kafka"} {
		walk(sink.Properties[kind], []string{kind})
	}
	walk(parse(data).Properties["server"], []string{"server"})
	if len(files) < 17 {
		t.Errorf("only %d files: %v", len(files), files)
	}
	needed := map[string]string{"nats": "urls: ['nats://n:4222']", "kafka": "brokers: ['k:9092']", "sasl": "mechanism: PLAIN"}
	for _, path := range files {
		value := `"/nowhere/file"`
		for i, key := range slices.Backward(path) {
			value = fmt.Sprintf("%s: %s", key, value)
			if path[0] == "server" {
				for _, other := range []string{"certFile", "keyFile"} { // which need each other; these are mounted
					if i == 2 && path[1] == "tls" && other != key {
						value += ", " + other + ": /etc/ssl/" + other
					}
				}
			} else if i > 0 {
				if more := needed[path[i-1]]; more != "" {
					value += ", " + more
				}
			}
			value = "{" + value + "}"
		}
		values := "config: {sinks: [{name: a, " + value[1:len(value)-1] + "}]}"
		want := "config.sinks[0]." + strings.Join(path, ".") + ` "/nowhere/file"`
		if path[0] == "server" {
			values, want = "config: "+value, "config."+strings.Join(path, ".")+` "/nowhere/file"`
		}
		if _, err := render(t, values); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want that it says %q", values, err, want)
		}
	}
}

func TestDashboardsAndRulesAreThoseInTheChartsFiles(t *testing.T) {
	t.Parallel()
	copied := t.TempDir()
	if err := os.CopyFS(copied, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	const panel = `{"title": "{{resource}}"}` // Grafana's braces, and not Helm's
	for name, text := range map[string]string{
		"more.json":   panel,
		"alerts.yaml": "groups: [{name: there, rules: [{alert: A, expr: up == 0, annotations: {summary: '{{ $labels.job }}'}}]}]",
	} {
		if err := os.WriteFile(filepath.Join(copied, "files", name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	out, err := run(t, "{dashboard: {enabled: true}, prometheusRule: {enabled: true, extraGroups: [{name: own, rules: []}]}}", "template", "kbridge", copied, "--show-only", "templates/dashboard.yaml", "--show-only", "templates/prometheusrule.yaml")
	if err != nil {
		t.Fatal(err)
	}
	list := parseObjects(t, out)
	if got := find[corev1.ConfigMap](t, list, "ConfigMap"); got.Data["more.json"] != panel || got.Labels["grafana_dashboard"] != "1" {
		t.Errorf("the dashboards are %q with the labels %v", got.Data, got.Labels)
	}
	own, err := os.ReadFile(filepath.Join(folder, "files", "dashboard.json"))
	if err != nil {
		t.Fatal(err)
	}
	if got := find[corev1.ConfigMap](t, list, "ConfigMap"); got.Data["dashboard.json"] != string(own) {
		t.Error("the chart's own dashboard is not as it is in the file")
	}
	type rules struct {
		Spec struct {
			Groups []struct {
				Name  string `json:"name"`
				Rules []struct {
					Annotations map[string]string `json:"annotations"`
				} `json:"rules"`
			} `json:"groups"`
		} `json:"spec"`
	}
	names := map[string]string{}
	for _, o := range list {
		if o.GetKind() != "PrometheusRule" {
			continue
		}
		data, err := o.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		var r rules
		if err := json.Unmarshal(data, &r); err != nil {
			t.Fatal(err)
		}
		for _, group := range r.Spec.Groups {
			names[group.Name] = ""
			for _, rule := range group.Rules {
				names[group.Name] = rule.Annotations["summary"]
			}
		}
	}
	if own, ok := names["own"]; !ok || own != "" || names["there"] != "{{ $labels.job }}" {
		t.Errorf("the groups are %q", names)
	}
}
