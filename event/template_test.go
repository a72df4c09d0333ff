package event

import (
	"net/url"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

func make1(t *testing.T, parse func(string) (*Template, error), text string, e *Event) string {
	t.Helper()
	tmpl, err := parse(text)
	if err != nil {
		t.Fatal(err)
	}
	return string(tmpl.Append(nil, e))
}

const everything = "k8s.{cluster}.{group}.{version}.{resource}.{kind}.{namespace}.{name}.{type}-x"

func TestPlaceholdersTakeTheEventsValues(t *testing.T) {
	list := samples()
	deployment, node, role := encode(&list[1].delta, Binary), encode(&list[8].delta, Binary), encode(&list[9].delta, Binary)
	for _, c := range []struct {
		parse func(string) (*Template, error)
		event *Event
		want  string
	}{
		{NATSSubject, deployment, "k8s.prod-eu.apps.v1.deployments.Deployment.shop.checkout-api.updated-x"},
		{KafkaTopic, deployment, "k8s.prod-eu.apps.v1.deployments.Deployment.shop.checkout-api.updated-x"},
		{NATSSubject, node, "k8s.prod-eu.core.v1.nodes.Node._.worker-1.added-x"},
		{KafkaTopic, node, "k8s.prod-eu.core.v1.nodes.Node._.worker-1.added-x"},
		{NATSSubject, role, "k8s.prod_eu%2E1.rbac%2Eauthorization%2Ek8s%2Eio.v1.clusterroles.ClusterRole._." +
			"system%3A%22odd%22%20%5C%20%C3%A9%E2%80%A8%3C%26%3E%0A%01%FF.added-x"},
		{KafkaTopic, role, "k8s.prod_5Feu.1.rbac.authorization.k8s.io.v1.clusterroles.ClusterRole._." +
			"system_3A_22odd_22_20_5C_20_C3_A9_E2_80_A8_3C_26_3E_0A_01_FF.added-x"},
	} {
		if got := make1(t, c.parse, everything, c.event); got != c.want {
			t.Errorf("got  %s\nwant %s", got, c.want)
		}
	}
}

func TestTextIsKeptAsItIsAndAppended(t *testing.T) {
	tmpl, err := NATSSubject("a.b")
	if err != nil {
		t.Fatal(err)
	}
	if got := string(tmpl.Append([]byte("x"), &Event{})); got != "xa.b" {
		t.Error(got)
	}
}

// An object may be called _: that is a value to escape, no namespace is not.
func TestANameOfOneUnderscoreIsEscapedInATopic(t *testing.T) {
	e := &Event{Resource: roles, Key: Key{Name: "_"}}
	if got := make1(t, KafkaTopic, "{namespace}.{name}", e); got != "_._5F" {
		t.Error(got)
	}
}

func TestAnEmptyValueMakesNoEmptyToken(t *testing.T) {
	e := &Event{Resource: NewResource(ResourceInfo{}), Type: Added}
	for _, parse := range []func(string) (*Template, error){NATSSubject, KafkaTopic} {
		for _, token := range strings.Split(make1(t, parse, everything, e), ".") {
			if token == "" {
				t.Error("a token is empty")
			}
		}
	}
}

func TestTemplatesThatAreWrongAreRefused(t *testing.T) {
	for text, want := range map[string]string{
		"":             "template is empty",
		"a.{name":      `template "a.{name": a { without its }`,
		"a.{":          `template "a.{": a { without its }`,
		"a}.{name}":    `template "a}.{name}": a } without its {`,
		"{name}}":      `template "{name}}": a } without its {`,
		"{{name}":      `template "{{name}": unknown placeholder {{name}`,
		"{}":           `template "{}": unknown placeholder {}`,
		"{uid}":        `unknown placeholder {uid}: expected one of {cluster}, {group}, {kind}, {name}, {namespace}, {resource}, {type}, {version}`,
		"{name}{Name}": `unknown placeholder {Name}`,
	} {
		for _, parse := range []func(string) (*Template, error){NATSSubject, KafkaTopic} {
			if _, err := parse(text); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q yields %v, want %s", text, err, want)
			}
		}
	}
}

func TestMakingASubjectAllocatesNothing(t *testing.T) {
	e := encode(&samples()[9].delta, Binary)
	tmpl, err := NATSSubject(everything)
	if err != nil {
		t.Fatal(err)
	}
	buf := make([]byte, 0, 512)
	if n := testing.AllocsPerRun(100, func() { tmpl.Append(buf, e) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

var natsToken = regexp.MustCompile(`^[A-Za-z0-9_%-]+$`)

// What can be read back is injective.
func FuzzNATSTokensAreLegalAndCanBeReadBack(f *testing.F) {
	for _, s := range []string{"a.b", " *>", "%2E", "_", "é\xff\x00", "system:node", "$SYS"} {
		f.Add(s)
	}
	tmpl, err := NATSSubject("{name}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := string(tmpl.Append(nil, &Event{Resource: roles, Key: Key{Name: name}}))
		if !natsToken.MatchString(got) {
			t.Fatalf("%q becomes %q", name, got)
		}
		if back, err := url.PathUnescape(got); name != "" && (err != nil || back != name) {
			t.Errorf("%q becomes %q, which is read as %q (%v)", name, got, back, err)
		}
	})
}

var (
	kafkaTopic   = regexp.MustCompile(`^[A-Za-z0-9._-]+$`)
	topicEscapes = regexp.MustCompile(`_..`)
)

func FuzzKafkaTopicsAreLegalAndCanBeReadBack(f *testing.F) {
	for _, s := range []string{"a.b", "_", "_5F", "é\xff\x00", "system:node", "__"} {
		f.Add(s)
	}
	tmpl, err := KafkaTopic("{name}")
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got := string(tmpl.Append(nil, &Event{Resource: roles, Key: Key{Name: name}}))
		if !kafkaTopic.MatchString(got) {
			t.Fatalf("%q becomes %q", name, got)
		}
		back := topicEscapes.ReplaceAllStringFunc(got, func(s string) string {
			c, err := strconv.ParseUint(s[1:], 16, 8)
			if err != nil {
				t.Fatal(err)
			}
			return string([]byte{byte(c)})
		})
		if name != "" && back != name {
			t.Errorf("%q becomes %q, which is read as %q", name, got, back)
		}
	})
}

func FuzzATemplateIsRefusedOrFillsEveryPlaceholder(f *testing.F) {
	for _, s := range []string{everything, "", "{", "}", "{{name}}", "a{name}b{type}", "{name}\x00{"} {
		f.Add(s)
	}
	e := encode(&samples()[1].delta, Binary)
	f.Fuzz(func(t *testing.T, text string) {
		tmpl, err := NATSSubject(text)
		if err != nil {
			return
		}
		want := text
		for name, field := range fields {
			want = strings.ReplaceAll(want, "{"+name+"}", string(appendToken(nil, field(e))))
		}
		if got := string(tmpl.Append(nil, e)); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	})
}

func TestWhatIsNotKnownOfAnEventIsAStarInItsPattern(t *testing.T) {
	list := samples()
	deployment := encode(&list[1].delta, Binary)
	for text, want := range map[string]string{
		"k8s.{cluster}.{namespace}.{name}-x.{type}": "k8s.prod-eu.shop.*-x.*",
		"{name}.name": "*.name",
		"fixed":       "fixed",
	} {
		tmpl, err := NATSSubject(text)
		if err != nil {
			t.Fatal(err)
		}
		if got := tmpl.Pattern(deployment, []string{"name", "type"}); got != want {
			t.Errorf("%s: %s, want %s", text, got, want)
		}
	}
	tmpl, err := NATSSubject("{name}")
	if err != nil {
		t.Fatal(err)
	}
	if got := tmpl.Pattern(&Event{Resource: roles, Key: Key{Name: "*"}}, nil); got != "%2A" {
		t.Errorf("a name of a star is %s", got)
	}
}
