package mirror

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"
)

// log is events in short form: attributes, separated by spaces, over those of one Pod's. The place of
// an event is its number, unless it says another.
type log []string

const (
	started   = "type=snapshot.started snapshot=s1"
	completed = "type=snapshot.completed snapshot=s1"
)

// rules has for each rule what goes wrong without it. want is uid.version by namespace/name.
var rules = map[string]struct {
	log  log
	want string
}{
	"an object is set by each type": {log{"type=added version=5", "type=added name=y uid=2 version=6", "type=updated name=y uid=2 version=8", "type=synced name=z uid=3 version=4"}, "shop/x=1.5 shop/y=2.8 shop/z=3.4"},
	"an object is removed":          {log{"type=added version=5", "type=deleted version=6"}, ""},
	"what is delivered again by the broker is passed over, whatever it says": {log{"type=added version=5", "type=deleted version=6 id=1.6.deleted", "place=0 type=added version=5", "place=1 type=added version=9"}, ""},
	"versions are numbers":                                           {log{"type=added version=999", "type=updated version=1000"}, "shop/x=1.1000"},
	"what is older is passed over":                                   {log{"type=added version=5", "type=updated version=7", "type=updated version=6"}, "shop/x=1.7"},
	"a repeat changes nothing":                                       {log{"type=added version=5", "type=added version=5"}, "shop/x=1.5"},
	"a lower epoch is older":                                         {log{"type=added version=5 epoch=1", "type=updated version=9"}, "shop/x=1.5"},
	"a higher epoch is newer":                                        {log{"type=added version=1200", "type=updated version=5 epoch=1 inferred"}, "shop/x=1.5"},
	"a restored backup brings it back":                               {log{"type=added version=5", "type=deleted version=9", "type=added version=5 epoch=1 inferred"}, "shop/x=1.5"},
	"what came before its deletion comes again":                      {log{"type=added version=5", "type=deleted version=6", "type=added version=5"}, ""},
	"its last state comes again":                                     {log{"type=added version=5", "type=deleted version=5 inferred", "type=added version=5"}, ""},
	"a deletion is first, its state comes again":                     {log{"type=deleted version=6", "type=updated version=5"}, ""},
	"it is made anew":                                                {log{"type=added version=5", "type=deleted version=5 inferred", "type=added uid=2 version=7"}, "shop/x=2.7"},
	"the predecessor comes again":                                    {log{"type=added version=5", "type=deleted version=6", "type=added uid=2 version=7", "type=added version=5", "type=deleted version=6"}, "shop/x=2.7"},
	"the predecessor's inferred deletion comes again":                {log{"type=added uid=2 version=7", "type=deleted version=5 inferred"}, "shop/x=2.7"},
	"without numbers the predecessor's deletion comes again":         {log{"type=added uid=2 version=v7", "type=deleted version=v6"}, "shop/x=2.v7"},
	"the predecessor's deletion comes after its own":                 {log{"type=deleted uid=2 version=7 id=2.7.deleted", "type=deleted version=5 inferred", "type=added uid=2 version=7"}, "shop/x=2.7"},
	"it is made anew in a history that nobody has noticed":           {log{"type=added version=9", "type=deleted version=9 inferred", "type=added uid=2 version=5 inferred"}, "shop/x=2.5"},
	"the predecessor in a state that was not told comes again":       {log{"type=added version=5", "type=deleted version=5 inferred", "type=added uid=2 version=7", "type=updated version=6", "type=deleted version=6"}, "shop/x=2.7"},
	"it is made anew, and the deletion of the predecessor is lost":   {log{"type=added version=5", "type=added uid=2 version=7", "type=updated version=6"}, "shop/x=2.7"},
	"an inferred deletion is true though its version is older":       {log{"type=added version=5", "type=updated version=7", "type=deleted version=5 inferred"}, ""},
	"after it the newest state that was known comes again":           {log{"type=added version=5", "type=updated version=7", "type=deleted version=5 inferred", "type=updated version=7"}, ""},
	"of an earlier epoch an inferred deletion is not":                {log{"type=added version=5 epoch=1", "type=deleted version=9 inferred"}, "shop/x=1.5"},
	"it left a selector's selection, and the selector went":          {log{"type=added version=5", "type=deleted version=7 id=1.7.deleted", "type=added version=7"}, "shop/x=1.7"},
	"it left the selection, and older states come again":             {log{"type=added version=5", "type=deleted version=7 id=1.7.deleted", "type=updated version=6"}, ""},
	"it left the selection in a later epoch":                         {log{"type=added version=5 epoch=1", "type=deleted version=7 epoch=1 id=1.e1.7.deleted", "type=added version=7 epoch=1"}, "shop/x=1.7"},
	"versions that are no numbers are taken in their order":          {log{"type=added version=v9", "type=updated version=v10", "type=updated version=a"}, "shop/x=1.a"},
	"the server prefers another API version":                         {log{"type=added version=5 source=v1", "type=updated version=6 source=v2"}, "shop/x=1.6"},
	"a cluster-scoped object has no namespace":                       {log{"type=added version=5 namespace="}, "_/x=1.5"},
	"a sweep drops what the snapshot does not have":                  {log{"type=added version=5", "type=added name=y uid=2 version=6", started, "type=synced name=y uid=2 version=6 snapshot=s1", completed}, "shop/y=2.6"},
	"a sweep keeps what changed since its beginning":                 {log{"type=added version=5", started, "type=updated version=7", completed}, "shop/x=1.7"},
	"a sweep keeps what is told in an older state":                   {log{"type=added version=7", started, "type=synced version=5 snapshot=s1", completed}, "shop/x=1.7"},
	"a snapshot that goes on began where it first did":               {log{"type=added version=5", started, "type=synced version=5 snapshot=s1", started, completed}, "shop/x=1.5"},
	"a snapshot that goes on after its end began where it first did": {log{"type=added version=5", started, "type=synced version=5 snapshot=s1", completed, started, completed}, "shop/x=1.5"},
	"the end of a snapshot whose beginning is not known":             {log{"type=added version=5", completed}, "shop/x=1.5"},
	"a sweep drops nothing of another entry":                         {log{"type=added version=5 entry=other", started, completed}, "shop/x=1.5"},
	"a sweep drops nothing of another resource":                      {log{"type=added version=5 resource=nodes", started, completed}, "shop/x=1.5"},
	"a sweep drops nothing of another group":                         {log{"type=added version=5 group=apps", started, completed}, "shop/x=1.5"},
	"a sweep drops nothing of another cluster":                       {log{"type=added version=5 cluster=d", started, completed}, "shop/x=1.5"},
	"a sweep drops of a namespace alone where that is the marker's":  {log{"type=added version=5", "type=added namespace=bar uid=2 version=6", started + " namespace=bar", completed + " namespace=bar"}, "shop/x=1.5"},
	"a sweep drops what is in the scope's namespaces":                {log{"type=added version=5", "type=added namespace=bar uid=2 version=6", started, completed + " namespaces=bar"}, "shop/x=1.5"},
	"a sweep drops nothing of excluded namespaces":                   {log{"type=added version=5", "type=added namespace=bar uid=2 version=6", started, completed + " excludeNamespaces=shop"}, "shop/x=1.5"},
	"a sweep drops tombstones":                                       {log{"type=added version=5", "type=deleted version=6", started, completed, "type=added version=5"}, "shop/x=1.5"},
	"what is verified is no object":                                  {log{"type=added version=5", "type=verified"}, "shop/x=1.5"},
}

// events are the log's, with their places, as JSON.
func (l log) events() []byte {
	type placed struct {
		Place int            `json:"place"`
		Event map[string]any `json:"event"`
	}
	var events []placed
	for i, short := range l {
		at := placed{i, map[string]any{"cluster": "c", "resource": "pods", "namespace": "shop", "name": "x", "uid": "1", "epoch": 0, "entry": "pods", "data": map[string]any{}}}
		scope := map[string]any{}
		for _, attribute := range strings.Fields(short) {
			name, value, _ := strings.Cut(attribute, "=")
			switch {
			case name == "place":
				fmt.Sscan(value, &at.Place)
			case name == "epoch":
				at.Event["epoch"] = int(value[0] - '0')
			case name == "inferred":
				at.Event["inferred"] = true
			case strings.HasSuffix(strings.ToLower(name), "namespaces"):
				scope[name] = []string{value}
			case name == "version":
				at.Event["resourceversion"] = value
			case value == "":
				delete(at.Event, name)
			case name == "type" && value == "verified" || name == "type" && strings.HasPrefix(value, "snapshot."):
				at.Event["type"] = "dev.kbridge." + value
				at.Event["data"] = map[string]any{"scope": scope}
				maps.DeleteFunc(at.Event, func(name string, _ any) bool { return name == "uid" || name == "name" || name == "namespace" })
			case name == "type":
				at.Event["type"] = "dev.kbridge.object." + value
			default:
				at.Event[name] = value
			}
		}
		if at.Event["id"] == nil {
			at.Event["id"] = fmt.Sprint(at.Event["uid"], ".", at.Event["resourceversion"])
			if at.Event["type"] == "dev.kbridge.object.deleted" {
				at.Event["id"] = fmt.Sprint(at.Event["uid"], ".deleted")
			}
		}
		events = append(events, at)
	}
	document, err := json.Marshal(events)
	if err != nil {
		panic(err)
	}
	return document
}

// difference says how what a mirror has differs from what it is to have.
func difference(has map[string][2]string, want string) error {
	for _, w := range strings.Fields(want) {
		name, state, _ := strings.Cut(w, "=")
		found := false
		for key, s := range has {
			if strings.HasSuffix(key, "/"+name) && s[0]+"."+s[1] == state {
				delete(has, key)
				found = true
			}
		}
		if !found {
			return fmt.Errorf("%s is missing, there is %v", w, has)
		}
	}
	if len(has) > 0 {
		return fmt.Errorf("there is %v too", has)
	}
	return nil
}

func TestEachRuleIsNeeded(t *testing.T) {
	for name, rule := range rules {
		t.Run(name, func(t *testing.T) {
			var events []struct {
				Place int64
				Event Event
			}
			if err := json.Unmarshal(rule.log.events(), &events); err != nil {
				t.Fatal(err)
			}
			m := New()
			for _, e := range events {
				m.Apply(e.Place, e.Event)
			}
			has := map[string][2]string{}
			m.Each(func(key string, o *Object) { has[key] = [2]string{o.UID, o.Version} })
			if err := difference(has, rule.want); err != nil {
				t.Error(err)
			}
		})
	}
}

// inPython applies logs that are given by name on the standard input, and prints what each ends with.
const inPython = `
import json, sys
from mirror import Mirror
has = {}
for name, log in json.load(sys.stdin).items():
    m = Mirror()
    for at in log:
        m.apply(at["place"], at["event"])
    has[name] = {key: [o["uid"], o["version"]] for key, o in m.state().items()}
print(json.dumps(has))
`

func TestEachRuleIsNeededInPythonToo(t *testing.T) {
	python, err := exec.LookPath("python3")
	switch {
	case err == nil:
	case os.Getenv("CI") == "true":
		t.Fatal(err)
	default:
		t.Skip(err)
	}
	logs := map[string]json.RawMessage{}
	for name, rule := range rules {
		logs[name] = rule.log.events()
	}
	input, err := json.Marshal(logs)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, "-B", "-c", inPython)
	cmd.Dir, cmd.Stdin = "../python", strings.NewReader(string(input))
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		t.Fatalf("%v: %s", err, exit.Stderr)
	}
	var has map[string]map[string][2]string
	if err := errors.Join(err, json.Unmarshal(out, &has)); err != nil {
		t.Fatal(err)
	}
	for name, rule := range rules {
		if err := difference(has[name], rule.want); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestATombstoneRemovesWhatCompactionLeftNoDeletedEventOf(t *testing.T) {
	m := New()
	added := Event{Type: "dev.kbridge.object.added", Cluster: "c", Resource: "pods", Namespace: "shop", Name: "x", UID: "1", ResourceVersion: "5"}
	m.Apply(0, added)
	m.Remove(4, added.Key())
	added.ResourceVersion = "4"
	m.Apply(5, added) // what is older does not bring it back
	m.Remove(6, "c/core/pods/shop/other")
	m.Each(func(key string, _ *Object) { t.Errorf("%s is there", key) })
}
