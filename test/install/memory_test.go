//go:build install && linux

package install

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// TestTenThousandPodsFitTheMemoryLimitThatTheChartGives installs the chart as it is for a medium cluster, with the broker
// in the process, which needs most. The pods are there as objects only: no scheduler knows of them.
func TestTenThousandPodsFitTheMemoryLimitThatTheChartGives(t *testing.T) {
	const pods, changes = 10_000, 3_000
	r := newRelease(t, "crowd")
	began := time.Now()
	r.inParallel(pods, func(ctx context.Context, i int) error {
		_, err := cluster.client.CoreV1().Pods(r.namespace).Create(ctx, crowd(i), metav1.CreateOptions{})
		return err
	})
	t.Logf("%d pods: %s", pods, time.Since(began).Round(time.Second))
	r.install("")
	p := r.awaitReady(nil)
	limit := p.Spec.Containers[0].Resources.Limits.Memory().Value()
	eventually(t, "all pods are with the sink", func() error {
		n, err := r.metric(`kbridge_published_total\{entry="pods",resource="pods",sink="embedded",type="added"\}`)
		if err == nil && n < pods {
			err = fmt.Errorf("%v of them are", n)
		}
		return err
	})
	pid := r.process(p)
	var peak atomic.Int64
	sampled := make(chan struct{})
	sampling, stop := context.WithCancel(t.Context())
	go func() {
		defer close(sampled)
		for ; sampling.Err() == nil; time.Sleep(20 * time.Millisecond) {
			peak.Store(max(peak.Load(), anonymous(pid)))
		}
	}()
	began = time.Now()
	r.inParallel(changes, func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{"changed":"%d"}}}`, i)
		_, err := cluster.client.CoreV1().Pods(r.namespace).Patch(ctx, crowd(i).Name, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
	eventually(t, "all changes are with the sink", func() error {
		n, err := r.metric(`kbridge_published_total\{entry="pods",resource="pods",sink="embedded",type="updated"\}`)
		if err == nil && n < changes {
			err = fmt.Errorf("%v of them are", n)
		}
		return err
	})
	stop()
	<-sampled
	const mebi = 1 << 20
	t.Logf("%d changes in %s: RssAnon %d MiB at most, of a limit of %d MiB", changes, time.Since(began).Round(time.Second), peak.Load()/mebi, limit/mebi)
	if now := r.get(); now.UID != p.UID || now.Status.ContainerStatuses[0].RestartCount != 0 {
		t.Errorf("it was started again: %+v", now.Status.ContainerStatuses[0])
	}
	// Go's own limit is nine tenths: at it the collector works without end.
	if peak.Load() > limit*8/10 {
		t.Errorf("RssAnon was %d MiB, more than 80 %% of the limit of %d MiB", peak.Load()/mebi, limit/mebi)
	}
}

// crowd is a pod of about 4 KB, as the API server gives it.
func crowd(i int) *corev1.Pod {
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name:        fmt.Sprintf("shop-%05d", i),
			Labels:      map[string]string{"app.kubernetes.io/name": "shop", "app.kubernetes.io/instance": fmt.Sprint("shop-", i%100), "pod-template-hash": fmt.Sprintf("%08x", i*2654435761)},
			Annotations: map[string]string{"prometheus.io/scrape": "true", "checksum/config": fmt.Sprintf("%064x", i*40503)},
		},
		Spec: corev1.PodSpec{SchedulerName: "nobody", NodeSelector: map[string]string{"pool": fmt.Sprint("pool-", i%10)}},
	}
	for c := range 2 {
		container := corev1.Container{Name: fmt.Sprint("c", c), Image: fmt.Sprintf("registry.example.com/shop/checkout-%d:v1.%d.%d", c, i%40, i%9)}
		container.SecurityContext = &corev1.SecurityContext{AllowPrivilegeEscalation: new(bool), Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}}
		for e := range 6 {
			container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprint("SETTING_", e), Value: fmt.Sprintf("value-%d-of-%d", e, i)})
		}
		p.Spec.Containers = append(p.Spec.Containers, container)
	}
	yes := true
	p.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: &yes, SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault}}
	return p
}

// inParallel does something n times, as fast as the API server lets it.
func (r *release) inParallel(n int, do func(ctx context.Context, i int) error) {
	r.t.Helper()
	var next atomic.Int64
	var failed atomic.Pointer[error]
	var working sync.WaitGroup
	for range 8 {
		working.Go(func() {
			for i := int(next.Add(1)) - 1; i < n && failed.Load() == nil; i = int(next.Add(1)) - 1 {
				if err := do(r.t.Context(), i); err != nil {
					failed.Store(&err)
				}
			}
		})
	}
	working.Wait()
	if err := failed.Load(); err != nil {
		r.t.Fatal(*err)
	}
}

// metric asks kbridge, through its Service, for the value of one metric.
func (r *release) metric(pattern string) (float64, error) {
	text, err := cluster.client.CoreV1().Services(r.namespace).ProxyGet("http", releaseName, "http", "metrics", nil).DoRaw(r.t.Context())
	if err != nil {
		return 0, err
	}
	m := regexp.MustCompile(`(?m)^` + pattern + ` (\S+)$`).FindSubmatch(text)
	if m == nil {
		return 0, errors.New("there is no " + pattern)
	}
	return strconv.ParseFloat(string(m[1]), 64)
}

// anonymous is the process's memory that no file backs, in bytes.
func anonymous(pid int) int64 {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0 // it has ended, which the test notices
	}
	_, rest, _ := bytes.Cut(status, []byte("RssAnon:"))
	fields := bytes.Fields(rest)
	if len(fields) == 0 {
		return 0
	}
	kib, _ := strconv.ParseInt(string(fields[0]), 10, 64) // the kernel wrote it
	return kib << 10
}
