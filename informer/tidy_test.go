package informer

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
	"github.com/kbridge-io/kbridge/internal/spill/spilltest"
)

// indexed is the object of that key in the first view.
func (b *bench) indexed(key string) (o *event.Object) {
	b.t.Helper()
	b.views[0].Index.With(key, func(is *event.Object) { o = is })
	if o == nil {
		b.t.Fatalf("%s is not in the index", key)
	}
	return o
}

func TestTheBodiesOfAListAreAsideAtOnceAndThoseOfChangesWhenTheyAreStored(t *testing.T) {
	configMap := func(api *scriptedapi.Server, name, value string) {
		api.Put(configMaps, map[string]any{"metadata": map[string]any{"name": name, "namespace": "shop"}, "data": map[string]any{"value": value}})
	}
	aside := spilltest.Open(t)
	inBubbleWith(t, config.Resource{Resource: "configmaps"}, aside, func(api *scriptedapi.Server) {
		configMap(api, "a", "one")
		configMap(api, "b", "one")
	}, func(b *bench) {
		says := func(key, value string, isAside bool) *event.Object {
			t.Helper()
			o := b.indexed(key)
			if body, err := o.JSON(); err != nil || !strings.Contains(string(body), fmt.Sprintf(`"value":%q`, value)) {
				t.Errorf("%s is %s, error %v, want %s", key, body, err, value)
			}
			if (o.Body == nil) != isAside {
				t.Errorf("%s is aside: %t", key, o.Body == nil)
			}
			return o
		}
		says("shop/a", "one", true)
		configMap(b.api, "a", "two")
		configMap(b.api, "b", "two")
		b.rest()
		a, second := says("shop/a", "two", false), says("shop/b", "two", false)
		configMap(b.api, "b", "three")
		b.rest()
		// What is stored of b is older than what is there, and c is gone.
		b.views[0].Index.Stored(map[string]*event.Object{"shop/a": a, "shop/b": second, "shop/c": nil})
		synctest.Wait()
		if moved := says("shop/a", "two", true); !moved.Same(a) {
			t.Errorf("it is %s, and was %s", moved.ResourceVersion, a.ResourceVersion)
		}
		third := says("shop/b", "three", false)
		b.views[0].Index.Stored(map[string]*event.Object{"shop/b": third})
		synctest.Wait()
		kept := says("shop/a", "two", true).Kept() + says("shop/b", "three", true).Kept()
		if got := testutil.ToFloat64(b.metrics.bytes.WithLabelValues("configmaps", "configmaps")); got != float64(kept) {
			t.Errorf("%v bytes in the gauge, want %d", got, kept)
		}
	})
}

func TestWhatIsLeftInAWastefulFileMovesAndIsTheSame(t *testing.T) {
	m := NewMetrics(prometheus.NewRegistry())
	v := &view{aside: spilltest.Open(t), index: map[string]indexed{}, counters: m.entry("things", "things", &tally{}).view}
	body := func(n int) []byte {
		return fmt.Appendf(nil, `{"name":"thing-%d","value":%q}`, n, strings.Repeat("x", 16<<10))
	}
	const n, every = 1024, 16
	for i := range n {
		o := v.Keep(&event.Object{Name: fmt.Sprint("thing-", i), UID: "u", ResourceVersion: "1", Body: body(i)})
		v.put(o.Key(), indexed{Object: o, round: 0})
	}
	for i := range n {
		if i%every != 0 {
			v.forget(v.index[fmt.Sprint("thing-", i)].Object)
		}
	}
	if !v.aside.Wasteful() {
		t.Fatal("the file is not wasteful")
	}
	v.compact(t.Context())
	if v.aside.Wasteful() {
		t.Error("the file is wasteful still")
	}
	for i := 0; i < n; i += every {
		o := v.index[fmt.Sprint("thing-", i)].Object
		if got, err := o.JSON(); err != nil || !bytes.Equal(got, body(i)) {
			t.Errorf("thing %d is %.40s, error %v", i, got, err)
		}
	}
}
