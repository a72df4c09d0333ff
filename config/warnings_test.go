package config

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestWhatIsAllowedAndShouldBeKnownIsWarnedOf(t *testing.T) {
	t.Parallel()
	const state = "state: {file: {dir: /d}}\n"
	three := func(a, b, c string) string {
		return state + fmt.Sprintf("sinks:\n  - {name: a, nats: {urls: ['nats://n']}, %s}\n  - {name: b, nats: {urls: ['nats://n']}, %s}\n  - {name: c, stdout: {}, %s}\n", a, b, c)
	}
	many := "resources:\n"
	for i := range 7 {
		many += fmt.Sprintf("  - {resource: r%d}\n", i)
	}
	memory := func(stream string) string {
		return state + nats("stream: "+stream)
	}
	const lost = "sinks[0].nats.stream.storage: what a stream keeps in memory is lost, though acknowledged, when its servers stop"
	for name, c := range map[string]struct {
		text string
		want []string
	}{
		"nothing to know": {pods + state, nil},
		"one sink blocks": {nats() + "    whenFull: block\n" + state, nil},
		"no state": {pods, []string{
			"state: none, so nothing survives a restart: everything is announced again, and what was deleted meanwhile is not noticed"}},

		"resync of other types": {resource("resync: 1h", "types: [added, deleted]") + state, []string{"resources[0].resync: types of pods has no synced, so a resync sends no object"}},
		"resync with synced":    {resource("resync: 1h", "types: [synced]") + state, nil},
		"no resync, no synced":  {resource("types: [added]") + state, nil},
		"start of other types":  {resource("onStart: snapshot", "types: [added]") + state, []string{"resources[0].onStart: types of pods has no synced, so the snapshot of a start sends no object"}},
		"start with synced":     {resource("onStart: snapshot") + state, nil},

		"secrets included":         {"resources: [{resource: pods}, {resource: secrets, secrets: include}]\n" + state, []string{"resources[1].secrets: the values in Secrets leave the cluster as they are"}},
		"secrets of core included": {"resources: [{group: core, resource: secrets, secrets: include}]\n" + state, []string{"resources[0].secrets: the values in Secrets leave the cluster as they are"}},
		"secrets redacted":         {"resources: [{resource: secrets}]\n" + state, nil},
		"secrets of another group": {"resources: [{group: example.com, resource: secrets, secrets: include}]\n" + state, nil},
		"include without Secrets":  {resource("secrets: include") + state, nil},

		"one waits for all": {pods + three("whenFull: block", "", ""), []string{"sinks[0].whenFull: while a is full, b, c wait with it for pods"}},
		"each for the other": {pods + three("", "whenFull: block", "whenFull: block"), []string{
			"sinks[1].whenFull: while b is full, a, c wait with it for pods", "sinks[2].whenFull: while c is full, a, b wait with it for pods"}},
		"some share": {"resources: [{resource: pods, sinks: [a]}, {resource: nodes, sinks: [c, b]}, {resource: services, sinks: [a, c]}]\n" + three("whenFull: block", "", ""), []string{
			"sinks[0].whenFull: while a is full, c waits with it for services"}},
		"none shares":        {"resources: [{resource: pods, sinks: [a]}, {resource: pods, sinks: [b, c]}]\n" + three("whenFull: block", "", ""), nil},
		"a resource once":    {"resources: [{resource: pods, namespaces: [x]}, {resource: pods, namespaces: [y]}]\n" + three("whenFull: block", "", ""), []string{"sinks[0].whenFull: while a is full, b, c wait with it for pods"}},
		"many resources":     {many + three("whenFull: block", "", ""), []string{"sinks[0].whenFull: while a is full, b, c wait with it for r0, r1, r2, r3, r4 and 2 more"}},
		"a sink for nothing": {"resources: [{resource: pods, sinks: [a, c]}]\n" + three("", "whenFull: block", ""), []string{"sinks[1]: no resource names b, so it gets no event"}},

		"stream in memory":    {memory("{storage: memory}"), []string{lost}},
		"stream of another's": {memory("{storage: memory, create: false}"), nil},
		"stream in files":     {memory("{storage: file}"), nil},
		"everything, in file order": {"resources: [{resource: secrets, secrets: include, resync: 1h, types: [added]}]\n" + strings.TrimPrefix(nats("stream: {storage: memory}"), pods), []string{
			"resources[0].resync: types of secrets has no synced, so a resync sends no object", "resources[0].secrets: the values in Secrets leave the cluster as they are", lost,
			"state: none, so nothing survives a restart: everything is announced again, and what was deleted meanwhile is not noticed"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			if diff := cmp.Diff(c.want, mustParse(t, c.text).Warnings()); diff != "" {
				t.Errorf("in\n%s\n%s", c.text, diff)
			}
		})
	}
}

func TestTheExampleOfAnAuditWarnsOfNothing(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../examples/nats.yaml")
	if err != nil {
		t.Fatal(err)
	}
	if w := mustParse(t, string(text)).Warnings(); len(w) > 0 {
		t.Errorf("examples/nats.yaml warns: %q", w)
	}
}
