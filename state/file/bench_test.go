//go:build unix

package file

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

var words = strings.Fields("api web cart checkout payment ledger audit search index cache queue worker mailer export import sync gateway proxy auth session user order stock price tax invoice report metrics traces logs")

// pod makes a pod of about 3.2 kB that is like others of its kind, as they are in a
// cluster: the same fields, and names, ids, times, images and numbers of its own.
func pod(random *rand.Rand, i int) *event.Object {
	pick := func() string { return words[random.IntN(len(words))] }
	hex := func(n int) string {
		return fmt.Sprintf("%016x%016x%016x%016x", random.Uint64(), random.Uint64(), random.Uint64(), random.Uint64())[:n]
	}
	uid := func() string { return hex(8) + "-" + hex(4) + "-" + hex(4) + "-" + hex(4) + "-" + hex(12) }
	at := func() string {
		return fmt.Sprintf("2026-%02d-%02dT%02d:%02d:%02dZ", 1+random.IntN(12), 1+random.IntN(28), random.IntN(24), random.IntN(60), random.IntN(60))
	}
	ip := func() string { return fmt.Sprintf("10.%d.%d.%d", random.IntN(256), random.IntN(256), random.IntN(256)) }
	app, namespace := pick(), pick()
	o := &event.Object{Namespace: namespace, UID: uid(), ResourceVersion: fmt.Sprint(random.IntN(100_000_000))}
	o.Name = fmt.Sprintf("%s-%06d", app, i)
	var env strings.Builder
	for j := range 6 {
		fmt.Fprintf(&env, `{"name":"%s_%s_%d","value":"%s"},`, strings.ToUpper(pick()), strings.ToUpper(pick()), j, pick()+"."+hex(6)+".svc:"+fmt.Sprint(random.IntN(65536)))
	}
	condition := func(kind string) string {
		return fmt.Sprintf(`{"type":%q,"status":"True","observedGeneration":1,"lastProbeTime":null,"lastTransitionTime":%q}`, kind, at())
	}
	image := "registry.example.com/" + namespace + "/" + app + ":v" + fmt.Sprint(random.IntN(20)) + "." + fmt.Sprint(random.IntN(300))
	o.Body = fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Pod","metadata":{"name":%q,"generateName":"%s-%s-","namespace":%q,"uid":%q,"resourceVersion":%q,"creationTimestamp":%q,`+
		`"labels":{"app.kubernetes.io/name":%q,"app.kubernetes.io/part-of":%q,"pod-template-hash":%q,"team":%q},"annotations":{"checksum/config":%q,"prometheus.io/scrape":"true","prometheus.io/port":"%d"},`+
		`"ownerReferences":[{"apiVersion":"apps/v1","kind":"ReplicaSet","name":"%s-%s","uid":%q,"controller":true,"blockOwnerDeletion":true}]},`+
		`"spec":{"volumes":[{"name":"config","configMap":{"name":"%s-%s","defaultMode":420}},{"name":"kube-api-access-%s","projected":{"sources":[{"serviceAccountToken":{"expirationSeconds":3607,"path":"token"}},{"configMap":{"name":"kube-root-ca.crt","items":[{"key":"ca.crt","path":"ca.crt"}]}}],"defaultMode":420}}],`+
		`"containers":[{"name":%q,"image":%q,"args":["--listen=:%d","--upstream=%s"],"env":[%s{"name":"POD_IP","valueFrom":{"fieldRef":{"apiVersion":"v1","fieldPath":"status.podIP"}}}],"resources":{"limits":{"cpu":"%dm","memory":"%dMi"},"requests":{"cpu":"%dm","memory":"%dMi"}},"volumeMounts":[{"name":"config","mountPath":"/etc/%s"}],"livenessProbe":{"httpGet":{"path":"/healthz","port":%d,"scheme":"HTTP"},"timeoutSeconds":1,"periodSeconds":10,"successThreshold":1,"failureThreshold":3},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"IfNotPresent"}],`+
		`"restartPolicy":"Always","terminationGracePeriodSeconds":30,"dnsPolicy":"ClusterFirst","serviceAccountName":%q,"nodeName":"node-%s","schedulerName":"default-scheduler","tolerations":[{"key":"node.kubernetes.io/not-ready","operator":"Exists","effect":"NoExecute","tolerationSeconds":300}],"priority":0,"enableServiceLinks":true},`+
		`"status":{"phase":"Running","conditions":[%s,%s,%s],"hostIP":%q,"podIP":%q,"startTime":%q,"containerStatuses":[{"name":%q,"state":{"running":{"startedAt":%q}},"lastState":{},"ready":true,"restartCount":%d,"image":%q,"imageID":"registry.example.com/%s@sha256:%s","containerID":"containerd://%s","started":true}],"qosClass":"Burstable"}}`,
		o.Name, app, hex(10), namespace, o.UID, o.ResourceVersion, at(), app, pick(), hex(10), pick(), hex(64), random.IntN(65536),
		app, hex(10), uid(), app, pick(), hex(5), app, image, random.IntN(65536), ip(), env.String(), random.IntN(4000), random.IntN(4000), random.IntN(1000), random.IntN(1000), app, random.IntN(65536),
		app, hex(6), condition("Initialized"), condition("Ready"), condition("PodScheduled"), ip(), ip(), at(), app, at(), random.IntN(9), image, app, hex(64), hex(64))
	return o
}

// pods makes so many pods by key.
func pods(random *rand.Rand, n int) map[string]*event.Object {
	all := make(map[string]*event.Object, n)
	for i := range n {
		o := pod(random, i)
		all[state.Key(o.Namespace, o.Name)] = o
	}
	return all
}

func podBatch(position int, objects map[string]*event.Object) *state.Batch {
	return &state.Batch{
		Views: map[state.ViewID]*state.ViewChange{"pods": {Info: state.ViewInfo{Position: fmt.Sprint(position), Listed: true, Version: "v1"}, Objects: objects}},
		Lanes: map[state.LaneID]*state.LaneChange{{Sink: "audit", View: "pods"}: {Info: state.LaneInfo{Position: fmt.Sprint(position)}}},
	}
}

// BenchmarkCommit stores changes that are spread over 100,000 pods.
func BenchmarkCommit(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	all := pods(random, 100_000)
	dir := b.TempDir()
	s, err := open(dir, lockTimeout)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close()
	mustCommit(b, s, podBatch(0, all))
	size, json := 0, 0
	for _, o := range all {
		json += len(o.Body)
	}
	info, err := os.Stat(filepath.Join(dir, Name))
	if err != nil {
		b.Fatal(err)
	}
	size = int(info.Size())
	for _, changed := range []int{1, 100, 10_000} {
		b.Run(fmt.Sprint(changed, " changed"), func(b *testing.B) {
			some := map[string]*event.Object{}
			for key, o := range all {
				if some[key] = o; len(some) == changed {
					break
				}
			}
			b.ReportAllocs()
			for n := 0; b.Loop(); n++ {
				mustCommit(b, s, podBatch(n, some))
			}
			b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(changed), "µs/object")
			b.ReportMetric(float64(size)/float64(len(all)), "file-B/object")
			b.ReportMetric(float64(json)/float64(len(all)), "JSON-B/object")
		})
	}
}

// BenchmarkLoad opens and loads 100,000 pods.
func BenchmarkLoad(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	dir := b.TempDir()
	s, err := open(dir, lockTimeout)
	if err != nil {
		b.Fatal(err)
	}
	mustCommit(b, s, podBatch(0, pods(random, 100_000)))
	mustClose(b, s)
	b.Run("open", func(b *testing.B) {
		for b.Loop() {
			s, err := open(dir, lockTimeout)
			if err != nil {
				b.Fatal(err)
			}
			s.Close()
		}
	})
	b.Run("load", func(b *testing.B) {
		s, err := open(dir, lockTimeout)
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		b.ReportAllocs()
		for b.Loop() {
			n := 0
			if _, err := s.LoadView("pods", func(*event.Object) error { n++; return nil }); err != nil || n != 100_000 {
				b.Fatal(n, err)
			}
		}
		b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/100_000, "µs/object")
	})
}

// BenchmarkScrub forgets 100,000 pods beside as many that stay: what the steps take for
// each GB that is free then, and for each that stays, which the first one reads.
func BenchmarkScrub(b *testing.B) {
	random := rand.New(rand.NewPCG(1, 1))
	kept, gone := podBatch(0, pods(random, 100_000)), podBatch(0, pods(random, 100_000))
	gone.Views["gone"] = gone.Views["pods"]
	delete(gone.Views, "pods")
	s := mustOpen(b, b.TempDir())
	mustCommit(b, s, kept)
	before := fileSize(b, s)
	lanes := []state.LaneID{{Sink: "audit", View: "pods"}}
	var first, rest, longest time.Duration
	var freed int64
	for b.Loop() {
		b.StopTimer()
		if err := s.Retain(map[state.ViewID]string{"pods": "", "gone": ""}, lanes); err != nil {
			b.Fatal(err)
		}
		mustCommit(b, s, gone)
		freed += fileSize(b, s) - before
		if err := s.Retain(map[state.ViewID]string{"pods": ""}, lanes); err != nil {
			b.Fatal(err)
		}
		b.StartTimer()
		for n, done := 0, false; !done; n++ {
			began := time.Now()
			var err error
			if done, err = s.Scrub(); err != nil {
				b.Fatal(err)
			}
			took := time.Since(began)
			if longest = max(longest, took); n == 0 {
				first += took
			} else {
				rest += took
			}
		}
	}
	const gb = 1e9
	b.ReportMetric(first.Seconds()/float64(b.N)/(float64(before)/gb), "first-s/GB")
	b.ReportMetric(rest.Seconds()/(float64(freed)/gb), "rest-s/GB")
	b.ReportMetric(float64(longest.Milliseconds()), "longest-ms")
}

func fileSize(b *testing.B, s *Store) int64 {
	b.Helper()
	info, err := os.Stat(s.path)
	if err != nil {
		b.Fatal(err)
	}
	return info.Size()
}
