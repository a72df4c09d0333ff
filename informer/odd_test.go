package informer

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"log"
	"log/slog"
	"math/big"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/rest"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

// unmarked takes the mark out of a watch's frames that ends the initial events.
func unmarked(frame []byte) []byte {
	return bytes.ReplaceAll(frame, []byte(`"k8s.io/initial-events-end":"true"`), nil)
}

func TestAServerThatDoesNotMarkTheEndOfTheInitialEventsIsListed(t *testing.T) {
	for name, endsAtOnce := range map[string]bool{"and says nothing more": false, "and ends the watch": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
				twoObjects(api)
				api.MangleFrames(configMaps, unmarked)
				if endsAtOnce {
					api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
						if r.Query.Get("sendInitialEvents") != "" {
							time.AfterFunc(2*time.Second, func() { api.EndWatches(configMaps) })
						}
						return nil
					})
				}
			}, func(b *bench) {
				b.expectSet("added default/a", "added default/b")
				if err := b.informer.Err(); err != nil {
					t.Errorf("Err = %v", err)
				}
				b.api.Update(configMaps, "default", "a", setData("k", "v"))
				b.api.Delete(configMaps, "default", "b")
				synctest.Wait()
				b.expect("updated default/a", "deleted default/b")
				// It is known from now on, and said once.
				b.api.ResetRequests()
				b.api.CutWatches()
				b.api.Compact()
				b.rest()
				for _, r := range b.api.Requests() {
					if r.Query.Get("sendInitialEvents") != "" {
						t.Errorf("it is asked for them again: %v", r.Query)
					}
				}
				if n := strings.Count(b.logs.String(), "does not say where the objects end"); n != 1 {
					t.Errorf("the log says so %d times", n)
				}
			})
		})
	}
}

func TestObjectsWithoutVersionsAreToldWhenTheirBodiesChange(t *testing.T) {
	for _, lists := range []bool{true, false} {
		t.Run(fmt.Sprintf("lists have one: %t", lists), func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
					setup(api)
					twoObjects(api)
					api.MangleFrames(configMaps, func(frame []byte) []byte {
						if lists && bytes.Contains(frame, []byte(`"BOOKMARK"`)) {
							return frame
						}
						return scriptedapi.Unversioned(frame)
					})
					api.MangleLists(configMaps, func(body []byte) []byte {
						if !lists {
							return scriptedapi.Unversioned(body)
						}
						head, items, _ := bytes.Cut(body, []byte(`"items":`))
						return append(append(head, `"items":`...), scriptedapi.Unversioned(items)...)
					})
				}, func(b *bench) {
					b.expectSet("added default/a", "added default/b")
					if err := b.informer.Err(); err != nil {
						t.Errorf("Err = %v", err)
					}
					ids := map[string]bool{}
					change := func(value string) {
						t.Helper()
						b.api.Update(configMaps, "default", "a", setData("k", value))
						synctest.Wait()
						b.recorder.mu.Lock()
						for _, d := range b.recorder.deltas {
							if id := d.ID(); ids[id] || !isUnversioned(d.Object) {
								t.Errorf("%s is told again, or has a version", id)
							} else {
								ids[id] = true
							}
						}
						b.recorder.mu.Unlock()
						b.expect("updated default/a")
					}
					change("one")
					change("two")
					change("one") // a state that it has been in is news
					// Each watch is a list, which finds what nobody saw, and nothing else.
					b.api.CutWatches()
					b.api.Delete(configMaps, "default", "b")
					b.rest()
					b.expect("deleted default/b inferred")
					for range 3 {
						b.api.EndWatches()
						b.rest()
					}
					b.expect()
					b.restart(func(*Known) { b.api.Update(configMaps, "default", "a", setData("k", "three")) })
					b.expect("updated default/a" + map[bool]string{false: " inferred"}[lists]) // a watch goes on from a list's version
				})
			})
		})
	}
}

// withoutUIDs is a server that has none.
func withoutUIDs(document []byte) []byte {
	return bytes.ReplaceAll(regexp.MustCompile(`"uid":"[^"]*",?`).ReplaceAll(document, nil), []byte(",}"), []byte("}"))
}

func TestWhatCanNotBeDoneRightIsRefusedByName(t *testing.T) {
	for want, mangle := range map[string]func(body []byte) []byte{
		"object default/a has no uid": withoutUIDs,
		"an object has no name": func(body []byte) []byte {
			return regexp.MustCompile(`"name":"[^"]*",`).ReplaceAll(body, nil)
		},
		`a list was expected, and a document of kind "Table" without items came`: func([]byte) []byte {
			return []byte(`{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"1"},"rows":[]}`)
		},
	} {
		t.Run(want, func(t *testing.T) {
			inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
				twoObjects(api)
				api.SetWatchList(false)
			}, func(b *bench) {
				b.recorder.take()
				b.api.MangleLists(configMaps, mangle)
				b.restart(func(k *Known) { k.Position = "" })
				b.recorder.expectNone(t) // what is known is not deleted
				if err := b.informer.Err(); ReasonOf(err) != Unreadable || !strings.Contains(err.Error(), want) {
					t.Errorf("Err = %v, want %q", err, want)
				}
			})
		})
	}
}

func TestAnObjectWithoutAUIDOnAWatchIsRefusedByName(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.recorder.take()
		b.api.MangleFrames(configMaps, withoutUIDs)
		b.api.Update(configMaps, "default", "a", setData("k", "v"))
		time.Sleep(time.Minute)
		synctest.Wait()
		b.recorder.expectNone(t)
		if err := b.informer.Err(); ReasonOf(err) != Unreadable || !strings.Contains(err.Error(), "default/a has no uid") {
			t.Errorf("Err = %v", err)
		}
		b.api.MangleFrames(configMaps, nil)
		b.rest()
		b.expect("updated default/a")
	})
}

func TestABookmarkWithoutAVersionSaysNothing(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		at := b.recorder.position()
		b.api.MangleFrames(configMaps, scriptedapi.Unversioned)
		b.api.Bookmark(configMaps)
		synctest.Wait()
		if got := b.recorder.position(); got != at || at == "" {
			t.Errorf("the position is %q, and was %q", got, at)
		}
		if s := b.informer.Status(); s.Errors > 0 {
			t.Errorf("it is an error: %v", s.LastError)
		}
	})
}

func TestAResourceThatMovesToAnotherVersionIsFollowed(t *testing.T) {
	alpha := schema.GroupVersionResource{Group: "moving.dev", Version: "v1alpha1", Resource: "things"}
	stable := schema.GroupVersionResource{Group: "moving.dev", Version: "v2alpha1", Resource: "things"} // as long as the other: sizes tell nothing
	setup := func(api *scriptedapi.Server) {
		api.Register(alpha, "Thing", false)
		for _, name := range []string{"a", "b", "c"} {
			api.Create(alpha, map[string]any{"metadata": map[string]any{"name": name}})
		}
	}
	inBubble(t, selection(alpha), setup, func(b *bench) {
		b.recorder.take()
		b.api.Move(alpha, stable)
		b.api.Update(stable, "", "a", setData("k", "v"))
		b.api.Delete(stable, "", "b")
		b.rest()
		b.recorder.mu.Lock()
		for _, d := range b.recorder.deltas {
			if got := d.Resource.Source(); got != "kubernetes://test/apis/moving.dev/v2alpha1/things" {
				t.Errorf("%s %s is of %s", d.Type, d.Object.Name, got)
			}
		}
		if r := b.recorder.moved; r == nil || r.Version != stable.Version {
			t.Errorf("the handler was told that it is %v", r)
		}
		restated := len(b.recorder.restated)
		b.recorder.mu.Unlock()
		b.expectSet("updated /a inferred", "deleted /b inferred")
		if restated != 1 {
			t.Errorf("%d bodies were restated, want that of c", restated)
		}
		b.views[0].Index.With("c", func(o *event.Object) {
			if body, err := o.JSON(); err != nil || !bytes.Contains(body, []byte(`"moving.dev/v2alpha1"`)) {
				t.Errorf("the index has %s, %v", body, err)
			}
		})
		if n := testutil.ToFloat64(b.metrics.lists.WithLabelValues(b.informer.Name(), b.informer.Name(), listMoved)); n != 1 || b.informer.Err() != nil {
			t.Errorf("%v lists, Err = %v", n, b.informer.Err())
		}
		if n := strings.Count(b.logs.String(), "another version now"); n != 1 {
			t.Errorf("the log says so %d times", n)
		}
		b.api.Create(stable, map[string]any{"metadata": map[string]any{"name": "d"}})
		synctest.Wait()
		b.expect("added /d")
	})
	pinned := selection(alpha)
	pinned.Version = alpha.Version
	inBubble(t, pinned, setup, func(b *bench) {
		b.recorder.take()
		b.api.Move(alpha, stable)
		b.rest()
		b.recorder.expectNone(t)
		if err := b.informer.Err(); ReasonOf(err) != NotServed {
			t.Errorf("where the version is pinned Err = %v", err)
		}
	})
}

func TestADiscoveryDocumentThatCanNotBeReadNamesTheAPIService(t *testing.T) {
	metrics := schema.GroupVersionResource{Group: "metrics.example.dev", Version: "v1beta1", Resource: "readings"}
	inBubble(t, selection(metrics), func(api *scriptedapi.Server) {
		api.Register(metrics, "Reading", false)
		api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if r.Path != "/apis/metrics.example.dev/v1beta1" {
				return nil
			}
			return &scriptedapi.Fault{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Content-Type", "application/json")
				fmt.Fprintln(w, `{"kind":`)
			})}
		})
	}, func(b *bench) {
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), "see the APIService v1beta1.metrics.example.dev") {
			t.Errorf("Err = %v", err)
		}
	})
}

func TestWhatTheServerWarnsOfIsLoggedOnce(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Add("Warning", `299 - "example.dev/v1beta1 Widget is deprecated"`)
		fmt.Fprintln(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u","resourceVersion":"1"}}`)
	}))
	defer server.Close()
	var logs strings.Builder
	client, err := NewClient(&rest.Config{Host: server.URL}, 1000, 1000, slog.New(slog.NewTextHandler(&logs, nil)))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	for range 3 {
		if _, err := client.ClusterUID(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := strings.Count(logs.String(), "Widget is deprecated"); n != 1 {
		t.Errorf("it is logged %d times:\n%s", n, &logs)
	}
}

func TestWatchesThatBeginWithWhatIsThereKeepToTheRateLimit(t *testing.T) {
	r := selection(configMaps)
	for i := range 30 {
		r.Namespaces = append(r.Namespaces, fmt.Sprint("n", i))
	}
	inBubble(t, r, nil, func(b *bench) {
		b.stop()
		client, err := NewClient(b.api.Config(), 1, 1, slog.New(slog.DiscardHandler))
		if err != nil {
			t.Fatal(err)
		}
		b.client.Close()
		b.client = client
		b.api.ResetRequests()
		b.start(nil, nil)
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if n := b.api.Count(scriptedapi.Watch, configMaps); n > 11 {
			t.Errorf("%d watches begin in 10 s, with one request a second", n)
		}
		b.rest()
		if n := b.lists(listStart); n != 30 || b.informer.Err() != nil {
			t.Errorf("%v starts are counted, Err = %v", n, b.informer.Err())
		}
	})
}

// stranger is the certificate of an authority that has signed nothing.
func stranger(t *testing.T) []byte {
	t.Helper()
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotAfter: time.Now().Add(time.Hour), IsCA: true, BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, template, template, public, private)
	if err != nil {
		t.Fatal(err)
	}
	return der
}

func TestAReplacedAuthorityIsReadAsSoonAsTheServerIsNotTrusted(t *testing.T) {
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		fmt.Fprintln(w, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":"u","resourceVersion":"1"}}`)
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	defer server.Close()
	file := filepath.Join(t.TempDir(), "ca.crt")
	write := func(der []byte) {
		t.Helper()
		if err := os.WriteFile(file, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write(stranger(t))
	client, err := NewClient(&rest.Config{Host: server.URL, TLSClientConfig: rest.TLSClientConfig{CAFile: file}}, 1000, 1000, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if _, err := client.ClusterUID(t.Context()); ReasonOf(err) != Untrusted {
		t.Errorf("with the authority of a stranger: %v (%s)", err, ReasonOf(err))
	}
	write(server.Certificate().Raw)
	if _, err := client.ClusterUID(t.Context()); err != nil {
		t.Errorf("with the file replaced: %v", err)
	}
	if err := os.Remove(file); err != nil {
		t.Fatal(err)
	}
	if _, err := client.ClusterUID(t.Context()); err != nil {
		t.Errorf("a file that is gone is of no matter while the server is trusted: %v", err)
	}
}

func TestAClusterScopedResourceWithNamespacesIsNamedAndStopsOnlyItsEntry(t *testing.T) {
	r := selection(widgets)
	r.Namespaces = []string{"shop"}
	inBubble(t, r, nil, func(b *bench) {
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), "it is cluster-scoped and can not be selected by namespaces: leave `namespaces` out") {
			t.Errorf("Err = %v", err)
		}
		select {
		case err := <-b.ended:
			t.Errorf("it has ended: %v", err)
			b.ended <- nil
		default:
		}
		if n := strings.Count(b.logs.String(), "cluster-scoped"); n != 1 {
			t.Errorf("the log says so %d times", n)
		}
	})
}

func TestAWrongNameIsAnsweredWithWhatIsMeantPerhaps(t *testing.T) {
	r := selection(configMaps)
	r.Resource = "configmap"
	inBubble(t, r, nil, func(b *bench) {
		const meant = "perhaps {resource: configmaps} is meant"
		if err := b.informer.Err(); err == nil || !strings.Contains(err.Error(), meant) || ReasonOf(err) != NotServed {
			t.Errorf("Err = %v", err)
		}
		if n := strings.Count(b.logs.String(), meant); n != 1 {
			t.Errorf("the log says so %d times", n)
		}
	})
}
