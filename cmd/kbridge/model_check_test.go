package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math/bits"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/examples/consumer/mirror"
	"github.com/kbridge-io/kbridge/state"
)

// What must not leave: a Secret's value, also in base64 and in an annotation, and what
// is dropped.
const (
	secretText = "swordfish"
	secretB64  = "c3dvcmRmaXNo"
	noiseText  = "driftwood"

	copyAnnotation = "copy"
)

// held is what a consumer has under a key.
type held struct{ uid, version string }

// consumer is a copy of the cluster that is made of events.
type consumer map[event.Key]held

func (c consumer) apply(e *event.Event) {
	switch e.Type {
	case event.Added, event.Updated, event.Synced:
		c[e.Key] = held{e.UID, e.ResourceVersion}
	case event.Deleted:
		delete(c, e.Key)
	}
}

// asConsumed is the event as the example of a consumer reads it.
func asConsumed(e *event.Event) mirror.Event {
	m := mirror.Event{Epoch: e.Epoch, Inferred: e.Inferred, Truncated: e.Truncated, Data: json.RawMessage(dataOf(e))}
	e.Attributes(func(name, value string) {
		for attribute, field := range map[string]*string{
			"id": &m.ID, "type": &m.Type, "cluster": &m.Cluster, "group": &m.Group, "resource": &m.Resource, "namespace": &m.Namespace,
			"name": &m.Name, "uid": &m.UID, "resourceversion": &m.ResourceVersion, "entry": &m.Entry, "snapshot": &m.Snapshot,
		} {
			if attribute == name {
				*field = value
			}
		}
	})
	return m
}

// mirrored is what a mirror has.
func mirrored(m *mirror.Mirror) consumer {
	c := consumer{}
	m.Each(func(key string, o *mirror.Object) {
		part := strings.Split(strings.NewReplacer("/core/", "//", "/_/", "//").Replace(key), "/")
		c[event.Key{Group: part[1], Resource: part[2], Namespace: part[3], Name: part[4]}] = held{o.UID, o.Version}
	})
	return c
}

// told is what a sink has been told of a snapshot.
type told struct {
	open      bool
	announced bool            // the stream has its begin
	ids       map[string]bool // of its events, dead letters apart
	processes map[int]bool
}

// body is what matters in an event's data.
type body struct {
	Metadata struct {
		Namespace, Name, UID, ResourceVersion string
		Annotations                           map[string]string
	}
	raw string
}

// order is the order of the event's version among those of its object, over all epochs.
func (s *stored) order() int64 { return int64(s.Epoch)<<40 + s.w.ver(s.ResourceVersion) }

// lineage is the history of one uid, as the server and as one broker's log have it.
type lineage struct {
	key     event.Key
	at      time.Time // of its last event
	newest  int64     // the version that came last, in the order of epochs
	process int       // that sent it
	deleted bool      // its last event was Deleted
}

// look checks one event against what came before it, and lets the consumers have it.
func (b *broker) look(s *stored) {
	w := b.w
	w.events++
	b.lookAtSnapshot(s)
	consumed := asConsumed(&s.Event)
	b.mirror.Apply(int64(len(b.log)), consumed)
	if !s.repeated {
		b.mirrorOfOnce.Apply(int64(len(b.log)), consumed)
	}
	if s.Type > event.Synced {
		return
	}
	b.lookAtBody(s)
	b.lookAtOrder(s)
	b.plain.apply(&s.Event)
	if !s.repeated {
		b.once.apply(&s.Event)
	}
	l := b.lineageOf(s.UID)
	selected := s.Resource.Selected
	if w.restored && !s.repeated && l.deleted && s.Type != event.Deleted && int64(s.Epoch) == l.newest>>40 {
		// A backup has brought it back, and nothing differed any more when the histories were
		// compared: its next deletion has the id of the last one. See docs/GUARANTEES.md.
		b.expose(s.UID, true)
	}
	if v := s.order(); v > l.newest || v == l.newest && !(l.deleted && !selected) || s.Type == event.Deleted && (s.Inferred || !selected) {
		b.newest.apply(&s.Event)
	}
	l.newest = max(l.newest, s.order())
	l.deleted, l.process, l.key, l.at = s.Type == event.Deleted, s.process, s.Key, s.at
}

func (b *broker) lineageOf(uid string) *lineage {
	l := b.lineages[uid]
	if l == nil {
		l = &lineage{}
		b.lineages[uid] = l
	}
	return l
}

func (b *broker) lookAtSnapshot(s *stored) {
	if s.Snapshot == "" {
		return
	}
	id := s.Resource.Name() + "/" + s.Snapshot
	t := b.snapshots[id]
	if t == nil {
		t = &told{ids: map[string]bool{}, processes: map[int]bool{}}
		b.snapshots[id] = t
	}
	t.processes[s.process] = true
	switch s.Type {
	case event.SnapshotStarted:
		t.open = true
		t.announced = t.announced || !s.dead
	case event.SnapshotCompleted:
		if !t.announced && !s.dead {
			b.w.failf("%s: a snapshot ends whose begin is a dead letter: %v", b.name, s)
		}
		if !t.open && !s.repeated {
			b.w.failf("%s: a snapshot ends that has not begun: %v", b.name, s)
		}
		t.open = false
		var data struct{ Count int }
		if err := json.Unmarshal([]byte(dataOf(&s.Event)), &data); err != nil {
			b.w.failf("%s: %v: %v", b.name, s, err)
		}
		if n := len(t.ids); data.Count > n || data.Count < n && len(t.processes) == 1 {
			b.w.failf("%s: %v counts %d events of %d", b.name, s, data.Count, n)
		}
	default:
		if !t.open {
			b.w.failf("%s: an event of a snapshot that is not open: %v", b.name, s)
		}
		t.ids[s.ID] = true
		if s.dead {
			delete(t.ids, s.ID) // it may have arrived before without an answer
		}
	}
}

// dataOf is the event's data.
func dataOf(e *event.Event) string {
	if e.Format == event.Binary {
		return string(e.Value)
	}
	var document struct {
		ID, UID, Type, ResourceVersion string
		Data                           json.RawMessage
	}
	if err := json.Unmarshal(e.Value, &document); err != nil || document.ID != e.ID || document.UID != e.UID {
		return "not the event: " + string(e.Value)
	}
	return string(document.Data)
}

func (b *broker) lookAtBody(s *stored) {
	w := b.w
	data := dataOf(&s.Event)
	rules := w.rules[s.process]
	if !rules.includes[b.name] && (strings.Contains(string(s.Value), secretText) || strings.Contains(string(s.Value), secretB64)) {
		w.failf("%s: a secret leaves: %v: %s", b.name, s, s.Value)
	}
	if rules.drops && strings.Contains(string(s.Value), noiseText) {
		w.failf("%s: what is dropped leaves: %v: %s", b.name, s, s.Value)
	}
	if s.Resource.Change {
		var change struct{ Object json.RawMessage }
		if err := json.Unmarshal([]byte(data), &change); err != nil {
			w.failf("%s: %v: %v", b.name, s, err)
			return
		}
		data = string(change.Object)
	}
	if err := json.Unmarshal([]byte(data), &s.body); err != nil {
		w.failf("%s: %v: %v", b.name, s, err)
		return
	}
	s.body.raw = canonical(data)
	if m := s.body.Metadata; m.UID != s.UID || m.Name != s.Key.Name || m.Namespace != s.Key.Namespace {
		w.failf("%s: %v has another object's body: %s", b.name, s, data)
	}
	n := s.body.Metadata.Annotations["n"]
	if s.Type != event.Deleted {
		if !w.states[s.UID+"@"+s.ResourceVersion+"="+n] || s.body.Metadata.ResourceVersion != s.ResourceVersion {
			w.failf("%s: %v has the body %s, which the server did not have", b.name, s, data)
		}
	} else if n != "" && !w.values[s.UID+"="+n] {
		w.failf("%s: %v has a body that never was: %s", b.name, s, data)
	} else if n == "" && !s.Inferred {
		w.failf("%s: %v has no body", b.name, s)
	}
	if first := b.ids[s.DedupID()]; first != s {
		same := first.UID == s.UID && (first.Type == event.Deleted) == (s.Type == event.Deleted)
		if s.Type != event.Deleted {
			same = same && first.ResourceVersion == s.ResourceVersion
			if !s.Resource.Change {
				same = same && first.body.raw == s.body.raw
			}
		}
		if !same {
			w.failf("%s: %v has the id of %v: %s and %s", b.name, s, first, s.body.raw, first.body.raw)
		}
	}
}

// canonical is the document with its keys in order, for lists and watches have them in
// another one, and without what some rules drop: a stored body has been through those
// of its time.
func canonical(data string) string {
	var content any
	if err := json.Unmarshal([]byte(data), &content); err != nil {
		return data
	}
	if object, ok := content.(map[string]any); ok {
		delete(object, "data") // redacted or not
		if metadata, ok := object["metadata"].(map[string]any); ok {
			if annotations, ok := metadata["annotations"].(map[string]any); ok { // with copies of it
				delete(annotations, copyAnnotation)
				delete(annotations, corev1.LastAppliedConfigAnnotation)
			}
		}
		if spec, ok := object["spec"].(map[string]any); ok {
			delete(spec, "noise")
		}
	}
	ordered, err := json.Marshal(content)
	if err != nil {
		return data
	}
	return string(ordered)
}

// lookAtOrder checks that a consumer which leaves out what it has seen goes forward.
// Where a process was killed, what it had sent and not stored may come again, with the
// same ids.
func (b *broker) lookAtOrder(s *stored) {
	w := b.w
	if s.repeated {
		if w.clean[s.process] && b.last[s.DedupID()] == s.process-1 && s.Type != event.Synced && !w.restored {
			w.failf("%s: %v is repeated after a clean stop", b.name, s)
		}
		// Repeats are bounded by what was under way, or not stored yet.
		was, ok := b.acked[s.DedupID()]
		if ok && was.process == s.process {
			delete(b.acked, s.DedupID()) // it is under way again: a deletion that may not have been told
		}
		if ok && was.process < s.process && was.at.Before(w.told[was.process]) && s.Type != event.Synced && !w.restored {
			w.failf("%s: %v is repeated, which was stored as delivered", b.name, s)
		}
		if w.knew(b, s) {
			w.failf("%s: %v is repeated, and the state says that the sink has it", b.name, s)
		}
		w.repeats++
		return
	}
	if w.restored || b.mayLack(s.UID) || !w.isToldAll(b.name, s.Key.Resource) {
		return
	}
	l := b.lineageOf(s.UID)
	for p := l.process + 1; p <= s.process; p++ {
		if l.process > 0 && w.unwritten[p] {
			return // what was folded while the disk failed went out without a record
		}
	}
	if v := s.order(); v < l.newest && !(s.Type == event.Deleted && s.Inferred) {
		w.failf("%s: a step back from %d: %v", b.name, l.newest, s)
	}
	// An object that has left another selection before may go once more.
	if l.deleted && !s.Resource.Selected && !b.reselected[s.Key.Resource] {
		w.failf("%s: after its deletion: %v", b.name, s)
	}
	has, found := b.plain[s.Key]
	found = found && has.uid == s.UID
	if b.reselected[s.Key.Resource] {
		return // what it was told under another selection is still there
	}
	certain := l.process == 0 || l.process == s.process || w.clean[s.process] && l.process == s.process-1
	if !certain {
		return
	}
	switch {
	case s.Type == event.Added && found:
		w.failf("%s: added, and the consumer has %+v: %v", b.name, has, s)
	case s.Type == event.Deleted && l.process == 0:
	// What the process before had under way may have arrived or not: the state says the one.
	case s.Type == event.Deleted && s.Inferred && w.killedBefore(s.process):
	// Whether an announcement had arrived before a kill is not known: see docs/GUARANTEES.md.
	case s.Type != event.Added && !found && (s.process == 1 || w.clean[s.process]):
		w.failf("%s: the consumer has %+v and not %v", b.name, has, s)
	}
}

// killedBefore says that a process before that one did not end cleanly.
func (w *world) killedBefore(process int) bool {
	for p := 1; p < process; p++ {
		if !w.clean[p] {
			return true
		}
	}
	return false
}

// ver is the order of a version, which a client does not see where they are opaque.
func (w *world) ver(label string) int64 {
	if w.opaque {
		n, _ := strconv.ParseUint(strings.TrimPrefix(label, "v"), 16, 64)
		return int64(bits.Reverse64(n))
	}
	n, _ := strconv.ParseInt(label, 10, 64)
	return n
}

// truth is what a sink's consumer is to have.
func (w *world) truth(sink string) consumer {
	c := consumer{}
	for i := range w.cfg.Resources {
		if r := &w.cfg.Resources[i]; r.SendsTo(sink) {
			maps.Copy(c, w.selectedBy(r))
		}
	}
	return c
}

// selectedBy is what there is of an entry's objects.
func (w *world) selectedBy(r *config.Resource) consumer {
	c, gvr := consumer{}, gvrOf(*r)
	for _, k := range w.pools[gvr] {
		if len(r.Namespaces) > 0 && !slices.Contains(r.Namespaces, k[0]) || slices.Contains(r.ExcludeNamespaces, k[0]) || w.unregistered[gvr] {
			continue
		}
		o := w.api.Get(gvr, k[0], k[1])
		if o == nil {
			continue
		}
		meta := o["metadata"].(map[string]any)
		if labels, _ := meta["labels"].(map[string]any); r.LabelSelector != "" && labels["app"] != "x" {
			continue
		}
		c[event.Key{Group: gvr.Group, Resource: gvr.Resource, Namespace: k[0], Name: k[1]}] = held{meta["uid"].(string), meta["resourceVersion"].(string)}
	}
	return c
}

// different says how a consumer's copy differs from the truth, of the objects that it is
// told of whole, but for those that may be wrong.
func different(has, truth consumer, of func(event.Key) bool, may func(uid string) bool) string {
	var text strings.Builder
	for key, h := range truth {
		if of(key) && has[key] != h && !may(h.uid) && !may(has[key].uid) {
			text.WriteString("\n  " + key.Resource + " " + key.Namespace + "/" + key.Name + ": has " + has[key].uid + "." + has[key].version + ", true is " + h.uid + "." + h.version)
		}
	}
	for key, h := range has {
		if _, there := truth[key]; !there && of(key) && !may(h.uid) {
			text.WriteString("\n  " + key.Resource + " " + key.Namespace + "/" + key.Name + ": has " + h.uid + "." + h.version + ", which is gone")
		}
	}
	return text.String()
}

// converged says what keeps the sinks' consumers from having the truth. All is healed.
func (w *world) converged() string {
	text := ""
	for _, s := range w.cfg.Sinks {
		truth := w.truth(s.Name)
		w.mu.Lock()
		b := w.brokers[s.Name]
		told := func(key event.Key) bool { return w.isToldAll(s.Name, key.Resource) }
		asSwept := func(key event.Key) bool { return told(key) && !b.left[key.Resource+"/"+key.Namespace] }
		asSelected := func(key event.Key) bool { return told(key) && !b.reselected[key.Resource] }
		for _, c := range []struct {
			what string
			has  consumer
			of   func(event.Key) bool
			may  func(uid string) bool
		}{
			{"of every event", b.plain, asSelected, b.mayLack},
			{"of the first of each id", b.once, asSelected, b.exposed},
			{"of every event, by docs/CONSUMERS.md", mirrored(b.mirror), asSwept, b.exposed},
			{"of the first of each id, by docs/CONSUMERS.md", mirrored(b.mirrorOfOnce), asSwept, b.exposed},
			{"of what is newer", b.newest, asSelected, b.exposed},
		} {
			if w.restored && w.opaque && c.what != "of every event" {
				continue // versions that do not compare do not tell one history from another
			}
			if d := different(c.has, truth, c.of, c.may); d != "" {
				text += "\n" + s.Name + ", " + c.what + ":" + d
			}
		}
		w.mu.Unlock()
	}
	if w.p == nil {
		return "no process" + text
	}
	w.p.d.mu.Lock()
	defer w.p.d.mu.Unlock()
	for _, o := range w.p.d.outputs {
		bytes, events, waiting := o.lane.Usage()
		if bytes != 0 || events != 0 || waiting != 0 || o.lane.Behind() != 0 {
			text += "\n" + o.entry.Name + " is not idle: " + strconv.FormatInt(bytes, 10) + " bytes, " + strconv.Itoa(events) + " events, behind on " + strconv.Itoa(o.lane.Behind())
		}
	}
	for _, s := range w.p.d.selected {
		if err := s.informer.Err(); err != nil {
			text += "\n" + err.Error()
		}
	}
	return text
}

// mistold says what /statusz tells otherwise than it is when everything is at rest.
func (w *world) mistold() (text string) {
	doc := w.p.d.status()
	if !doc.Ready {
		text += fmt.Sprintf("\n/statusz has the problems %v", doc.Problems)
	}
	for i, r := range doc.Resources {
		if there := len(w.selectedBy(&w.cfg.Resources[i])); r.Objects != int64(there) || r.LagSeconds != 0 {
			text += fmt.Sprintf("\n/statusz tells a resource, of which there are %d objects, as %+v", there, r)
		}
	}
	for _, s := range doc.Sinks {
		if s.Error != "" || s.OldestSeconds != 0 || s.BehindObjects != 0 || s.Window.Events != 0 || s.Window.Bytes != 0 {
			text += fmt.Sprintf("\n/statusz tells a sink as %+v", s)
		}
	}
	return text
}

// settled says what does not hold although everything has been healed and nothing is
// under way.
func (w *world) settled() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	text := ""
	for _, b := range w.brokers {
		if !slices.ContainsFunc(w.cfg.Sinks, func(s config.Sink) bool { return s.Name == b.name }) {
			continue
		}
		for id, t := range b.snapshots {
			// What had begun and was not stored when a process was killed is not gone on with.
			if t.open && w.p != nil && t.processes[w.p.number] {
				text += fmt.Sprintf("\n%s: the snapshot %s is not completed", b.name, id)
			}
		}
	}
	if w.disk == nil {
		return text
	}
	for id, l := range w.disk.lanes {
		if len(l.behind) > 0 || l.info.Snapshot != nil {
			text += fmt.Sprintf("\n%s is stored as behind on %v of %s, snapshot %+v", id.Sink, slices.Collect(maps.Keys(l.behind)), id.View, l.info.Snapshot)
		}
	}
	if !w.disk.residue.IsZero() {
		text += "\nthe disk is not scrubbed"
	}
	for id, v := range w.disk.views {
		if v.info.Position == "" || !v.info.Listed {
			text += fmt.Sprintf("\n%s is stored at %+v", id, v.info)
		}
	}
	return text
}

// uncounted says of which entries and sinks the counters do not tell what became of every
// delta, as docs/METRICS.md has it. A process that goes on with another's state may have
// more: what the other one owed comes without a delta.
func (w *world) uncounted() string {
	if w.p == nil {
		return ""
	}
	began := w.p.number == 1 || w.disk == nil
	families, err := w.p.reg.Gather()
	if err != nil {
		return "\n" + err.Error()
	}
	deltas, dealt := map[string]float64{}, map[string]float64{} // by entry, and by sink and entry
	for _, f := range families {
		for _, m := range f.GetMetric() {
			labels := map[string]string{}
			for _, l := range m.GetLabel() {
				labels[l.GetName()] = l.GetValue()
			}
			switch f.GetName() {
			case "kbridge_deltas_total":
				deltas[labels["entry"]] += m.GetCounter().GetValue()
			case "kbridge_published_total", "kbridge_dead_letters_total":
				if t, ok := event.ParseType(labels["type"]); !ok || t == event.Synced {
					continue // it stands for no delta
				}
				fallthrough
			case "kbridge_filtered_total", "kbridge_folded_total":
				dealt[labels["sink"]+" "+labels["entry"]] += m.GetCounter().GetValue()
			}
		}
	}
	text := ""
	for n, entry := range entryNames(w.cfg.Resources) {
		for _, s := range w.cfg.Sinks {
			if !w.cfg.Resources[n].SendsTo(s.Name) {
				continue
			}
			if n, of := dealt[s.Name+" "+entry], deltas[entry]; n < of || n > of && began {
				text += fmt.Sprintf("\n%s: %v of %v deltas of %s are counted", s.Name, n, of, entry)
			}
		}
	}
	return text
}

// checkDisk checks that a start from what is stored would not leave anything out: what
// the index has, each sink has had, or is recorded as behind on.
func (w *world) checkDisk() {
	if w.disk == nil || w.restored {
		return
	}
	for id, l := range w.disk.lanes {
		b, v := w.brokers[id.Sink], w.disk.views[id.View]
		if r := w.entryOf(id); b == nil || v == nil || r == nil || !w.isToldAll(id.Sink, r.Resource) || b.reselected[r.Resource] {
			continue
		}
		for key, o := range v.objects {
			if _, recorded := l.behind[key]; recorded {
				continue
			}
			// What came and went while the sink was behind may have lost its record before
			// the index lost it: nothing but a deletion can come of it.
			if w.there(id.View, w.keyOf(id.View, o), o) && w.ver(o.ResourceVersion) > b.lineageOf(o.UID).newest&(1<<40-1) && !b.exposed(o.UID) && !b.exposed(b.plain[w.keyOf(id.View, o)].uid) {
				w.failf("the index of %s has %s@%s, which %s has not had and is not recorded as behind on", id.View, key, o.ResourceVersion, id.Sink)
			}
		}
		if v.info.Position == "" {
			continue
		}
		for key, h := range b.plain {
			if !w.viewHas(id.View, key) {
				continue
			}
			k := state.Key(key.Namespace, key.Name)
			if o := v.objects[k]; o != nil && o.UID == h.uid {
				continue
			}
			if r, recorded := l.behind[k]; recorded && (r.UID == h.uid || r.UID == "") {
				continue
			}
			if w.ver(h.version) <= w.ver(v.info.Position) && !b.exposed(h.uid) {
				w.failf("%s has %s@%s, which the index of %s at %s does not have, and nothing is recorded: its deletion would be lost", id.Sink, k, h.version, id.View, v.info.Position)
			}
		}
	}
}

// expose notes of which objects a sink has more than the disk knows, when a process ends
// that could not store it: what was acknowledged since the last commit, or so shortly
// before it that another sink did not have it yet. Where the server has forgotten that
// part of its history too, a deletion of these can not be found, and what replays shows
// again need not be what was shown. KBRIDGE_STRICT=1 does not let that pass.
func (w *world) expose() {
	if w.disk == nil || os.Getenv("KBRIDGE_STRICT") != "" {
		return
	}
	for _, b := range w.brokers {
		for uid, l := range b.lineages {
			if !l.at.Before(w.disk.committed) {
				b.expose(uid, w.disk.failed)
			}
		}
		for id := range w.disk.views {
			if w.entryOf(state.LaneID{Sink: b.name, View: id}) != nil && !w.hasOther(b.name, id) {
				w.exposeView(b, id)
			}
		}
	}
}

// hasOther says that the sink's part is in another watch of the same selection.
func (w *world) hasOther(sink string, view state.ViewID) bool {
	for id := range w.disk.lanes {
		if id.Sink == sink && id.View != view && slices.Equal(partsOf(id.View), partsOf(view)) {
			return true
		}
	}
	return false
}

// expose notes one. for ever says that the next process does not know either that there
// was more: the sink is new, or what was folded for it has been sent without a record.
func (b *broker) expose(uid string, forEver bool) {
	since, before := b.unstored[uid]
	switch {
	case forEver:
		b.unstored[uid] = time.Time{}
	case !before || since.After(b.w.disk.committed):
		b.unstored[uid] = b.w.disk.committed
	}
}

func (b *broker) exposed(uid string) bool {
	_, is := b.unstored[uid]
	return is
}

// mayLack says that what the disk did not know is lost: there was a list, about then or
// since. Without one the watch tells all of it again.
func (b *broker) mayLack(uid string) bool {
	since, exposed := b.unstored[uid]
	const list = 3 * time.Second // that a list may take
	return exposed && (b.w.restored || b.w.opaque || b.w.listed[b.lineageOf(uid).key.Resource].After(since.Add(-list)))
}

// knew says that the process began with a state by which the sink had the event, and
// went on from there without a list.
func (w *world) knew(b *broker, s *stored) bool {
	for id, l := range w.loaded {
		if id.Sink != b.name || l.process != s.process || !w.viewHas(id.View, s.Key) || w.opaque || w.restored || s.Type >= event.Synced {
			continue
		}
		_, behind := l.behind[state.Key(s.Key.Namespace, s.Key.Name)]
		return !behind && l.info.Position != "" && w.ver(s.ResourceVersion) <= w.ver(l.info.Position) && w.listed[s.Key.Resource].Before(l.at)
	}
	return false
}

// settling is for how long a sink that is ahead of the others may be alone in having
// an event: they wait for room, or for an answer, and are then behind on it. With
// whenFull: block there is no end to that.
func (w *world) settling() time.Duration {
	d := 1200 * time.Millisecond
	for _, s := range w.cfg.Sinks {
		if s.WhenFull == config.WhenFullBlock {
			return time.Hour
		}
		d += 2 * s.FoldAfter // one after the other, and room that others take begins it anew
	}
	return d
}

func (w *world) exposeView(b *broker, id state.ViewID) {
	v := w.disk.views[id]
	_, known := w.disk.lanes[state.LaneID{Sink: b.name, View: id}]
	recent := w.disk.committed.Add(-w.settling())
	for uid, l := range b.lineages {
		if !w.viewHas(id, l.key) || known && l.at.Before(recent) {
			continue
		}
		// After a backup was restored versions say nothing of what the index has.
		indexed := v.objects[state.Key(l.key.Namespace, l.key.Name)]
		lacks := indexed == nil || indexed.UID != uid
		if !known || lacks || v.info.Position == "" || l.newest&(1<<40-1) > w.ver(v.info.Position) {
			b.expose(uid, !known || w.disk.failed)
		}
	}
}

// there says whether the server has that state of the object in the watch's selection: of
// another one the watch, or a list, will tell.
func (w *world) there(id state.ViewID, key event.Key, indexed *event.Object) bool {
	gvr := schema.GroupVersionResource{Group: key.Group, Version: "v1", Resource: key.Resource}
	if w.unregistered[gvr] {
		return false
	}
	o := w.api.Get(gvr, key.Namespace, key.Name)
	if o == nil {
		return false
	}
	meta := o["metadata"].(map[string]any)
	labels, _ := meta["labels"].(map[string]any)
	return meta["uid"] == indexed.UID && meta["resourceVersion"] == indexed.ResourceVersion && (!strings.Contains(string(id), "app=x") || labels["app"] == "x")
}

// keyOf is the key of an object's events.
func (w *world) keyOf(id state.ViewID, o *event.Object) event.Key {
	resource, group, _ := strings.Cut(partsOf(id)[0], ".")
	return event.Key{Group: group, Resource: resource, Namespace: o.Namespace, Name: o.Name}
}

// partsOf are the parts of a watch's selection.
func partsOf(id state.ViewID) []string {
	number, rest, found := strings.Cut(string(id), ":")
	if _, err := strconv.Atoi(number); found && err == nil {
		id = state.ViewID(rest)
	}
	return strings.Split(string(id), "|")
}

// viewHas says whether objects of that key are in the watch.
func (w *world) viewHas(id state.ViewID, key event.Key) bool {
	parts := partsOf(id)
	name := key.Resource
	if key.Group != "" {
		name += "." + key.Group
	}
	return parts[0] == name && (parts[1] == "" || parts[1] == key.Namespace) && (key.Namespace == "" || !slices.Contains(strings.Split(parts[2], ","), key.Namespace))
}

// notePartial notes of which resources a sink is not told all: its consumers can not be
// right about them from here on. The lock is held.
func (w *world) notePartial() {
	for i := range w.cfg.Resources {
		for name, b := range w.brokers {
			if r := &w.cfg.Resources[i]; r.SendsTo(name) && !tellsAll(r) {
				b.partial[r.Resource] = true
			}
		}
	}
}

// checkLanes checks bounds that always hold.
func (w *world) checkLanes() {
	if w.p == nil {
		return
	}
	if text := w.unscrubbed(); text != "" {
		w.mu.Lock()
		w.failf("process %d is ready, and%s", w.p.number, text)
		w.mu.Unlock()
	}
	w.p.d.mu.Lock()
	defer w.p.d.mu.Unlock()
	keys := 0
	for _, pool := range w.pools {
		keys += len(pool)
	}
	fail := func(format string, args ...any) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.failf(format, args...)
	}
	markers := 3 * len(viewKeys(w.cfg.Resources))
	const markerSize = 2 << 10
	for _, o := range w.p.d.outputs {
		if n := o.lane.Behind(); n > keys {
			fail("%s is behind on %d objects, and there were never more than %d", o.entry.Name, n, keys)
		}
		// Each watch may have two markers, and the outcome of a comparison, beyond the window; and
		// what is larger passes alone.
		bytes, events, _ := o.lane.Usage()
		if events > o.entry.Window.Events+markers {
			fail("%s has %d events in a window of %d", o.entry.Name, events, o.entry.Window.Events)
		}
		if bytes > int64(o.entry.Window.Bytes)+int64(markers*markerSize) && events > 1+markers {
			fail("%s has %d bytes in a window of %d, in %d events", o.entry.Name, bytes, o.entry.Window.Bytes, events)
		}
	}
	if k := w.p.d.keeper; k != nil {
		if n := k.Pending(); n > burstSize+keys {
			fail("%d changes are held", n)
		}
	}
}
