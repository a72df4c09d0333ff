//go:build install && linux

package install

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
)

func TestPodsThatAreDeletedAndKilledUnderChurnLoseNothingAndRepeatNothing(t *testing.T) {
	r := newRelease(t, "churn")
	broker := r.startNATS()
	r.install(`
config:
  cluster: c
  resources: [{resource: configmaps, namespaces: [churn]}]
  sinks: [{name: bus, nats: {urls: ["nats://nats:4222"], stream: {name: K8S}}}]
probes: {readiness: {periodSeconds: 1}}
gracePeriodSeconds: 3
`)
	p := r.awaitReady(nil)
	c := startChurn(t, "churn")

	for range 2 {
		r.kill(p)
		r.awaitRestart(p)
		c.awaitMore(t)
		if err := cluster.client.CoreV1().Pods(r.namespace).Delete(t.Context(), pod, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		p = r.awaitReady(p)
		c.awaitMore(t)
	}
	want := c.stop(t)
	t.Logf("%d changes of %d objects", len(slices.Concat(values(want)...)), len(want))

	var got []event
	eventually(t, "all changes arrive", func() error {
		got = broker.read(t)
		there := map[string]bool{}
		for _, e := range got {
			there[e.ID] = true
		}
		for _, ids := range want {
			for _, id := range ids {
				if !there[id] {
					return fmt.Errorf("%s is not among %d events", id, len(got))
				}
			}
		}
		return nil
	})
	order := map[string][]string{}
	for _, e := range got {
		if _, ok := want[e.UID]; ok {
			order[e.UID] = append(order[e.UID], e.ID)
		}
	}
	for uid, ids := range want {
		if !slices.Equal(order[uid], ids) {
			t.Errorf("the events of one object are %q, want %q", order[uid], ids)
		}
	}
}

func values(m map[string][]string) (all [][]string) {
	for _, v := range m {
		all = append(all, v)
	}
	return all
}

// churn changes ConfigMaps until it is stopped.
type churn struct {
	cancel context.CancelFunc
	done   chan error

	mu  sync.Mutex
	ids map[string][]string // by uid, in order: what each change's event is called
	n   int
}

func startChurn(t *testing.T, namespace string) *churn {
	ctx, cancel := context.WithCancel(t.Context())
	c := &churn{cancel: cancel, done: make(chan error, 1), ids: map[string][]string{}}
	go func() { c.done <- c.run(ctx, namespace) }()
	t.Cleanup(cancel)
	return c
}

// run makes, changes and deletes objects, of which several are there at a time, and names come again.
func (c *churn) run(ctx context.Context, namespace string) error {
	objects := cluster.client.CoreV1().ConfigMaps(namespace)
	alive := map[string]*corev1.ConfigMap{}
	for i := 0; ctx.Err() == nil; i++ {
		name := fmt.Sprintf("churn-%d", i%7)
		o := alive[name]
		// A change that has begun is finished, so that it is known whether it was made.
		var err error
		switch {
		case o == nil:
			o, err = objects.Create(context.WithoutCancel(ctx), configMap(name), metav1.CreateOptions{})
		case i%5 == 4:
			if err = objects.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}); err == nil {
				c.note(string(o.UID), string(o.UID)+".deleted")
				o = nil
				alive[name] = nil
			}
		default:
			o.Data["a"] = fmt.Sprint(i)
			o, err = objects.Update(context.WithoutCancel(ctx), o, metav1.UpdateOptions{})
		}
		if err != nil {
			return err
		}
		if o != nil {
			alive[name] = o
			c.note(string(o.UID), string(o.UID)+"."+o.ResourceVersion)
		}
		select {
		case <-time.After(10 * time.Millisecond):
		case <-ctx.Done():
		}
	}
	return nil
}

func (c *churn) note(uid, id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ids[uid] = append(c.ids[uid], id)
	c.n++
}

// awaitMore waits until there are some more changes.
func (c *churn) awaitMore(t *testing.T) {
	t.Helper()
	count := func() int {
		c.mu.Lock()
		defer c.mu.Unlock()
		return c.n
	}
	from := count()
	eventually(t, "the churn goes on", func() error {
		if n := count(); n < from+100 {
			return fmt.Errorf("%d changes", n-from)
		}
		return nil
	})
}

// stop returns what was changed.
func (c *churn) stop(t *testing.T) map[string][]string {
	t.Helper()
	c.cancel()
	if err := <-c.done; err != nil {
		t.Fatalf("the churn ended: %v", err)
	}
	return c.ids
}

// broker is a NATS server in a pod.
type broker struct{ stream jetstream.Stream }

// startNATS starts a NATS server in a pod of its own, with a Service that is called nats.
func (r *release) startNATS() *broker {
	r.t.Helper()
	labels := map[string]string{"app": "nats"}
	server := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "nats", Labels: labels},
		Spec: corev1.PodSpec{
			SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](65532), SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}},
			Containers: []corev1.Container{{
				Name: "nats", Image: natsImage, ImagePullPolicy: corev1.PullNever, Args: []string{"-js", "-sd", "/data"},
				SecurityContext: &corev1.SecurityContext{AllowPrivilegeEscalation: ptr.To(false), ReadOnlyRootFilesystem: ptr.To(true), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
				VolumeMounts:    []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
			}},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}},
		},
	}
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "nats"},
		Spec:       corev1.ServiceSpec{Selector: labels, Ports: []corev1.ServicePort{{Name: "client", Port: 4222, TargetPort: intstr.FromInt32(4222)}}},
	}
	core := cluster.client.CoreV1()
	if _, err := core.Pods(r.namespace).Create(r.t.Context(), server, metav1.CreateOptions{}); err != nil {
		r.t.Fatal(err)
	}
	service, err := core.Services(r.namespace).Create(r.t.Context(), service, metav1.CreateOptions{})
	if err != nil {
		r.t.Fatal(err)
	}
	// The node reaches the Service's address as pods do.
	conn, err := nats.Connect("nats://"+service.Spec.ClusterIP+":4222", nats.RetryOnFailedConnect(true), nats.MaxReconnects(-1), nats.ReconnectWait(200*time.Millisecond))
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(conn.Close)
	js, err := jetstream.New(conn)
	if err != nil {
		r.t.Fatal(err)
	}
	b := &broker{}
	eventually(r.t, "the NATS server answers", func() error {
		ctx, cancel := context.WithTimeout(r.t.Context(), time.Second)
		defer cancel()
		_, err := js.AccountInfo(ctx)
		return err
	})
	// kbridge finds the stream as this test has made it.
	if b.stream, err = js.CreateStream(r.t.Context(), jetstream.StreamConfig{Name: "K8S", Subjects: []string{"k8s.>"}}); err != nil {
		r.t.Fatal(err)
	}
	return b
}

// read returns all events of objects that the stream has.
func (b *broker) read(t *testing.T) []event {
	t.Helper()
	info, err := b.stream.Info(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	consumer, err := b.stream.OrderedConsumer(t.Context(), jetstream.OrderedConsumerConfig{})
	if err != nil {
		t.Fatal(err)
	}
	var events []event
	for range info.State.Msgs {
		m, err := consumer.Next(jetstream.FetchMaxWait(10 * time.Second))
		if err != nil {
			t.Fatal(err)
		}
		var e event
		if err := json.Unmarshal(m.Data(), &e); err != nil {
			t.Fatal(errors.New("no event: " + string(m.Data())))
		}
		if strings.HasPrefix(e.Type, "dev.kbridge.object.") {
			events = append(events, e)
		}
	}
	return events
}
