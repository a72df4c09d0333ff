package informer

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

// always has each request for configmaps fail in one way.
func always(f scriptedapi.Fault) func(*scriptedapi.Request) *scriptedapi.Fault {
	return func(r *scriptedapi.Request) *scriptedapi.Fault {
		if r.GVR != configMaps {
			return nil
		}
		return &f
	}
}

// logged are the messages of the log since the last call, with their levels.
func (b *bench) logged() (lines []string) {
	for line := range strings.Lines(b.logs.String()) {
		level, rest, _ := strings.Cut(line[strings.Index(line, "level=")+len("level="):], " ")
		message, _, _ := strings.Cut(strings.TrimPrefix(rest, "msg="), " resource=")
		lines = append(lines, level+" "+strings.Trim(message, `"`))
	}
	b.logs.Reset()
	return lines
}

func TestAWatchThatDoesNotGoOnIsToldWithItsCause(t *testing.T) {
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		fmt.Fprintln(w, "<html>please log in</html>")
	})
	for name, c := range map[string]struct {
		fault  scriptedapi.Fault
		reason Reason
		text   string
	}{
		"permission is revoked":      {scriptedapi.Fail(403), Forbidden, "forbidden"},
		"the token is refused":       {scriptedapi.Fail(401), Unauthorized, "Unauthorized"},
		"the version is gone":        {scriptedapi.Fail(404), NotServed, "not found"},
		"the server breaks":          {scriptedapi.Fail(500), Failed, "leader changed"},
		"the server is not there":    {scriptedapi.Fail(503), Overloaded, "shutting down"},
		"the server is busy":         {scriptedapi.Throttle(30 * time.Second), Overloaded, "too many requests"},
		"connections break":          {scriptedapi.Fault{Drop: true}, Unreachable, "EOF"},
		"a proxy answers with HTML":  {scriptedapi.Fault{Handler: page}, Unreadable, "text/html"},
		"the watch ends with errors": {scriptedapi.Fault{Event: &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: "Failure", Code: 500, Reason: "InternalError", Message: "etcd has no leader"}}, Failed, "etcd has no leader"},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
				b.logged()
				b.recorder.take()
				lists := b.allLists()
				began := time.Now()
				b.api.OnRequest(always(c.fault))
				if c.fault.Event != nil {
					// The lists before a watch succeed.
					b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
						if r.GVR != configMaps || r.Verb != scriptedapi.Watch {
							return nil
						}
						return &c.fault
					})
				}
				b.api.CutWatches()
				time.Sleep(25 * time.Second)
				synctest.Wait()
				if err := b.informer.Err(); err != nil {
					t.Errorf("after 25 s Err = %v", err)
				}
				if w := b.informer.Watches(); w.Up != 0 || w.Down[c.reason] != 1 {
					t.Errorf("after 25 s the watches are %+v", w)
				}
				time.Sleep(10 * time.Second)
				synctest.Wait()
				var unwatched *WatchError
				if err := b.informer.Err(); !errors.As(err, &unwatched) || ReasonOf(err) != c.reason || !strings.Contains(err.Error(), c.text) || !strings.HasSuffix(err.Error(), ", since "+unwatched.Since.Format(time.RFC3339)) {
					t.Errorf("after 35 s Err = %v (%s), want %s with %q", err, ReasonOf(err), c.reason, c.text)
				} else if unwatched.Since.Sub(began) > time.Second {
					t.Errorf("it is down since %s, and not since %s", unwatched.Since, began)
				}
				time.Sleep(10 * time.Minute)
				if got := b.logged(); !slices.Equal(got, []string{"WARN cannot watch, trying again"}) {
					t.Errorf("the log has %q", got)
				}
				b.api.OnRequest(nil)
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.rest()
				b.expect("updated default/a")
				if err := b.informer.Err(); err != nil || b.informer.Watches().Up != 1 {
					t.Errorf("when it is back Err = %v, %+v", err, b.informer.Watches())
				}
				if got := b.logged(); !slices.Equal(got, []string{"INFO watching again"}) {
					t.Errorf("when it is back the log has %q", got)
				}
				if n := b.allLists() - lists; n != 0 {
					t.Errorf("%v lists were made", n)
				}
			})
		})
	}
}

func TestAServerThatSaysHowLongToWaitIsLeftAloneForThatLong(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.api.OnRequest(always(scriptedapi.Throttle(20 * time.Second)))
		b.api.ResetRequests()
		b.api.CutWatches()
		time.Sleep(59 * time.Second)
		synctest.Wait()
		if n := b.api.Count(scriptedapi.List, configMaps) + b.api.Count(scriptedapi.Watch, configMaps); n > 3 {
			t.Errorf("it is asked %d times in a minute", n)
		}
	})
}

func TestARestartOfTheServerMakesNoLines(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.logged()
		b.api.Down()
		time.Sleep(3 * time.Second)
		b.api.Up()
		b.rest()
		if got := b.logged(); len(got) > 0 {
			t.Errorf("the log has %q", got)
		}
		if err := b.informer.Err(); err != nil {
			t.Error(err)
		}
	})
}

func TestAStartThatMayNotWatchIsToldAtOnce(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		for _, resumed := range []bool{false, true} {
			b.logs.Reset()
			known := b.stop()
			f := scriptedapi.Fail(403)
			b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
				if r.GVR != configMaps || r.Verb != scriptedapi.Watch {
					return nil
				}
				return &f
			})
			if !resumed {
				known = nil
			}
			b.start(known, nil)
			time.Sleep(3 * time.Second)
			synctest.Wait()
			if err := b.informer.Err(); ReasonOf(err) != Forbidden {
				t.Errorf("resumed %t: Err = %v", resumed, err)
			}
			if n := testutil.ToFloat64(b.metrics.synced.WithLabelValues("configmaps", "configmaps")); n != 0 {
				t.Errorf("resumed %t: kbridge_synced is %v before there is a watch", resumed, n)
			}
			if !slices.Contains(b.logged(), "WARN cannot watch, trying again") {
				t.Errorf("resumed %t: the log does not say so", resumed)
			}
			b.api.OnRequest(nil)
			b.rest()
			if n := testutil.ToFloat64(b.metrics.synced.WithLabelValues("configmaps", "configmaps")); n != 1 || b.informer.Err() != nil {
				t.Errorf("resumed %t: kbridge_synced is %v, Err = %v", resumed, n, b.informer.Err())
			}
		}
	})
}

func TestAResumedStartIsNotReadyBeforeItsWatchIsThere(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.restart(func(*Known) { b.api.FailNext(scriptedapi.Watch, configMaps, scriptedapi.Fault{Delay: time.Hour}) })
		if err := b.informer.Err(); !errors.Is(err, ErrNotListed) && ReasonOf(err) != Silent {
			t.Errorf("Err = %v before the watch is there", err)
		}
	})
}

func TestEachNamespaceThatIsNotWatchedIsCounted(t *testing.T) {
	r := selection(configMaps)
	r.Namespaces = []string{"one", "two", "three"}
	inBubble(t, r, nil, func(b *bench) {
		f := scriptedapi.Fail(403)
		b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.Namespace != "one" && r.Namespace != "two" {
				return nil
			}
			return &f
		})
		b.api.CutWatches()
		time.Sleep(40 * time.Second)
		synctest.Wait()
		if diff := cmp.Diff(Watches{All: 3, Up: 1, Down: map[Reason]int{Forbidden: 2}}, b.informer.Watches(), cmp.FilterPath(func(p cmp.Path) bool { return p.Last().String() == ".Heard" }, cmp.Ignore())); diff != "" {
			t.Error(diff)
		}
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), " and 1 more: ") {
			t.Errorf("Err = %v", err)
		}
	})
}

func TestASilentWatchIsEndedAndGoesOn(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.GVR == configMaps && r.Verb == scriptedapi.Watch {
				r.Query.Set("timeoutSeconds", "0") // the server does not end it
			}
			return nil
		})
		b.api.CutWatches()
		b.rest()
		b.api.Silence(configMaps)
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		silent := func() float64 {
			return testutil.ToFloat64(b.metrics.silent.WithLabelValues("configmaps", "configmaps"))
		}
		// It lasts for ten minutes at most, and half of one; the next one, on which nothing
		// comes either, for five at least.
		for range 11 {
			if time.Sleep(time.Minute); silent() > 0 {
				break
			}
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		b.expect("updated default/a")
		if n := silent(); n != 1 {
			t.Errorf("%v silent watches are counted", n)
		}
		if b.allLists() != 1 {
			t.Errorf("%v lists", b.allLists())
		}
	})
}

func TestAWatchThatWaitsForItsReaderIsNotSilent(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		gate := make(chan struct{})
		b.recorder.mu.Lock()
		b.recorder.gate = gate
		b.recorder.mu.Unlock()
		for i := range 3 {
			b.api.Update(configMaps, "default", "a", setData("k", i))
		}
		time.Sleep(time.Hour)
		close(gate)
		synctest.Wait()
		if n := testutil.ToFloat64(b.metrics.silent.WithLabelValues("configmaps", "configmaps")); n != 0 {
			t.Errorf("%v silent watches are counted", n)
		}
	})
}

func TestAServerThatHangsIsLeftAndNamed(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.api.OnRequest(always(scriptedapi.Fault{Hang: true}))
		b.api.CutWatches()
		time.Sleep(35 * time.Second)
		synctest.Wait()
		if err := b.informer.Err(); ReasonOf(err) != Silent {
			t.Errorf("while the first answer is awaited Err = %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := b.informer.Err(); ReasonOf(err) != Silent || !strings.Contains(err.Error(), "nothing has come for 1m15s") {
			t.Errorf("after that Err = %v", err)
		}
		b.api.OnRequest(nil)
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		b.recorder.take()
		time.Sleep(2 * answerWithin)
		synctest.Wait()
		b.expect("updated default/a")
		if err := b.informer.Err(); err != nil {
			t.Errorf("Err = %v", err)
		}
	})
}
