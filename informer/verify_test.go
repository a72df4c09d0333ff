package informer

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

// isComparison says that the request lists metadata.
func isComparison(r *scriptedapi.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "PartialObjectMetadataList")
}

// comparisons are the lists of metadata that the server was asked for.
func (b *bench) comparisons() (n int) {
	for _, r := range b.api.Requests() {
		if r.GVR == configMaps && isComparison(&r) {
			n++
		}
	}
	return n
}

// otherwise lets the cluster be restored from a backup and then go on in another way than
// before, past all that was seen of it.
func otherwise(api *scriptedapi.Server, backup *scriptedapi.Snapshot) {
	api.Restore(backup)
	api.Create(configMaps, configMap("default", "new", nil))
	api.Advance(1000)
}

func TestAnotherHistoryThatIsLongerIsNoticedAndMended(t *testing.T) {
	for name, how := range map[string]func(b *bench, backup *scriptedapi.Snapshot){
		"while kbridge is down": func(b *bench, backup *scriptedapi.Snapshot) {
			b.restart(func(*Known) { otherwise(b.api, backup) })
		},
		"while it can not be reached": func(b *bench, backup *scriptedapi.Snapshot) {
			b.api.Down()
			time.Sleep(time.Minute)
			otherwise(b.api, backup)
			b.api.Up()
			b.rest()
		},
		"between two watches": func(b *bench, backup *scriptedapi.Snapshot) {
			otherwise(b.api, backup) // it cuts connections, and refuses none
			b.rest()
		},
	} {
		for _, bookmarks := range []time.Duration{0, time.Minute} {
			t.Run(fmt.Sprintf("%s, bookmarks %s", name, bookmarks), func(t *testing.T) {
				bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
					inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
						setup(api)
						twoObjects(api)
						api.SetBookmarks(bookmarks)
					}, func(b *bench) {
						backup := b.api.Snapshot()
						b.api.Update(configMaps, "default", "a", setData("k", "lost"))
						b.api.Create(configMaps, configMap("default", "lost", nil))
						b.api.Delete(configMaps, "default", "b")
						b.rest()
						b.recorder.take()
						how(b, backup)
						b.rest()
						b.expectSet("updated default/a inferred", "deleted default/lost inferred", "added default/b inferred", "added default/new inferred")
						// The next watch may begin before the history is longer.
						if n := b.lists(listDiffers) + b.lists(listBehind); n != 1 || b.history.Epoch() != 1 {
							t.Errorf("%v lists for that, epoch %d: want one each", n, b.history.Epoch())
						}
						if n := testutil.ToFloat64(b.metrics.differences.WithLabelValues("configmaps", "configmaps")); n != 4*b.lists(listDiffers) {
							t.Errorf("%v differences are counted, want 4", n)
						}
						// It is known now.
						b.rest()
						b.rest()
						b.recorder.expectNone(t)
						if b.history.Epoch() != 1 {
							t.Errorf("epoch %d", b.history.Epoch())
						}
					})
				})
			})
		}
	}
}

// The list that a lost history makes necessary tells of another one too.
func TestAListThatIsOfAnotherHistoryBeginsAnEpoch(t *testing.T) {
	for name, change := range map[string]func(*scriptedapi.Server){
		"an object has gone back":                   func(*scriptedapi.Server) {},
		"what was not there is older than the seen": func(api *scriptedapi.Server) { api.Update(configMaps, "default", "b", setData("k", "other")) },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
				backup := b.api.Snapshot()
				b.api.Update(configMaps, "default", "a", setData("k", "lost"))
				b.rest()
				b.restart(func(*Known) {
					b.api.Restore(backup)
					change(b.api)
					b.api.Advance(1000)
					b.api.Compact()
				})
				if b.lists(listExpired) != 1 || b.history.Epoch() != 1 {
					t.Errorf("%v lists of a lost history, epoch %d", b.lists(listExpired), b.history.Epoch())
				}
			})
		})
	}
}

// Two histories may give one version to two states of one object.
func TestAStateWithTheVersionOfAnotherIsToldInTheNewEpoch(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		backup := b.api.Snapshot()
		b.api.Update(configMaps, "default", "a", setData("k", "lost"))
		b.api.Create(configMaps, configMap("default", "lost", nil))
		b.rest()
		b.recorder.take()
		b.api.Down()
		time.Sleep(time.Minute)
		b.api.Restore(backup)
		b.api.Update(configMaps, "default", "a", setData("k", "other")) // at the same version
		b.api.Advance(1000)
		b.api.Up()
		b.rest()
		b.rest()
		b.expectSet("updated default/a inferred", "deleted default/lost inferred")
	})
}

// An earlier run may have told sinks more than the index has. Where a backup takes the server
// back behind that, all is told again, also what is as the index has it.
func TestWhatSinksMayHaveHadBeforeABackupWasRestoredIsToldAgain(t *testing.T) {
	for name, compacts := range map[string]bool{"a comparison finds out": false, "a list does": true} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
				backup := b.api.Snapshot()
				b.api.Update(configMaps, "default", "b", setData("k", "lost"))
				b.rest()
				b.restart(func(*Known) {
					b.api.Delete(configMaps, "default", "a") // a sink knows of it, and the index does not
					b.api.Restore(backup)
					b.api.Advance(1000)
					if compacts {
						b.api.Compact()
					}
				})
				b.rest() // a comparison waits for the watch
				for _, d := range b.recorder.deltas {
					if d.Object.Epoch != 1 {
						t.Errorf("%s is told in epoch %d: a consumer has had the event, or newer ones", d.Object.Name, d.Object.Epoch)
					}
				}
				b.expect("updated default/a inferred", "updated default/b inferred")

				// From here on the sinks have what this run has told them.
				backup = b.api.Snapshot()
				b.api.Update(configMaps, "default", "b", setData("k", "lost"))
				b.rest()
				b.recorder.take()
				b.api.Restore(backup)
				b.api.Advance(2000)
				time.Sleep(earlyShare * catchUp) // the last comparison has taken long
				b.rest()
				b.rest()
				b.expect("updated default/b inferred")
			})
		})
	}
}

// Where another history says that an object has gone, another one of the name, which is known
// from the history before, is not there either.
func TestTheEndOfAnObjectOfAnotherHistoryEndsTheOneOfTheName(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		backup := b.api.Snapshot()
		b.api.Delete(configMaps, "default", "a")
		b.api.Create(configMaps, configMap("default", "a", nil))
		b.rest()
		known := b.stop()
		b.api.Restore(backup)
		b.api.Advance(100)
		b.api.Delete(configMaps, "default", "a")
		b.start(known, nil)
		time.Sleep(time.Second)
		synctest.Wait()
		deltas := b.recorder.deltas
		b.expect("deleted default/a inferred", "deleted default/a")
		var was string
		for _, o := range known.Objects {
			if o.Name == "a" {
				was = o.UID
			}
		}
		if deltas[0].Object.UID != was || deltas[1].Object.UID == was || deltas[1].Old != nil {
			t.Errorf("%s went, and then %s: want %s first", deltas[0].Object.UID, deltas[1].Object.UID, was)
		}
	})
}

// A history that is proven is the one that sinks were told: where it is another one later,
// only what differs is told.
func TestAfterAProofOnlyWhatDiffersInAnotherHistoryIsTold(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		b.restart(nil)
		backup := b.api.Snapshot()
		b.api.Update(configMaps, "default", "b", setData("k", "lost"))
		b.rest()
		b.recorder.take()
		b.api.Restore(backup)
		b.api.Advance(1000)
		b.rest()
		b.rest()
		b.expect("updated default/b inferred")
	})
}

func TestAHistoryThatIsTheSameIsProvenOnceAndTellsNothing(t *testing.T) {
	inBubble(t, selection(configMaps), func(api *scriptedapi.Server) {
		for i := range 3 * pageObjects / 2 {
			api.Create(configMaps, configMap("default", fmt.Sprint("n", i), nil))
		}
	}, func(b *bench) {
		if n := b.comparisons(); n != 0 {
			t.Errorf("%d lists of metadata after a list", n)
		}
		b.restart(nil)
		b.rest()
		if n := b.comparisons(); n != 2 {
			t.Errorf("%d lists of metadata, want one of two pages", n)
		}
		b.recorder.expectNone(t)
		if n := testutil.ToFloat64(b.metrics.verifications.WithLabelValues("configmaps", "configmaps", "same")); n != 1 || b.allLists() != 0 || b.history.Epoch() != 0 {
			t.Errorf("%v comparisons found nothing, %v lists, epoch %d", n, b.allLists(), b.history.Epoch())
		}
		// A watch that ends when it was to end is no reason for doubt.
		time.Sleep(30 * time.Minute)
		if n := b.comparisons(); n != 2 {
			t.Errorf("%d lists of metadata after half an hour", n)
		}
	})
}

// A watch that is cut again and again does not make the server list all the time.
func TestConnectionsThatAreCutOftenCostFewComparisons(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		for range 100 {
			b.api.CutWatches()
			time.Sleep(3 * time.Second)
		}
		if n := b.comparisons(); n < 2 || n > 11 {
			t.Errorf("%d lists of metadata in five minutes, want a few", n)
		}
	})
}

// What changes while it is compared is no difference.
func TestChangesWhileTheServerIsComparedAreNoDifference(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		t.Run(fmt.Sprintf("opaque versions: %t", opaque), func(t *testing.T) {
			r := selection(configMaps)
			r.Verify = time.Minute
			inBubble(t, r, func(api *scriptedapi.Server) { twoObjects(api); api.SetOpaqueVersions(opaque) }, func(b *bench) {
				b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
					if isComparison(r) {
						return &scriptedapi.Fault{Delay: 20 * time.Second}
					}
					return nil
				})
				for i := range 200 {
					b.api.Update(configMaps, "default", "a", setData("k", fmt.Sprint(i)))
					b.api.Create(configMaps, configMap("default", "brief", nil))
					time.Sleep(time.Second)
					b.api.Delete(configMaps, "default", "brief")
					time.Sleep(time.Second)
				}
				b.api.OnRequest(nil)
				time.Sleep(10 * time.Minute)
				synctest.Wait()
				b.recorder.mu.Lock()
				verified := slices.Clone(b.recorder.verified)
				b.recorder.mu.Unlock()
				if b.lists(listDiffers) != 0 || len(verified) < 5 {
					t.Errorf("%v lists for differences; verified %v", b.lists(listDiffers), verified)
				}
				for _, v := range verified {
					if v[1] != 0 || v[0] < 2 || v[0] > 3 {
						t.Errorf("%d objects were compared, %d differed", v[0], v[1])
					}
				}
			})
		})
	}
}

// A difference for which there is no reason is found by the schedule, in each form.
func TestTheScheduleFindsWhatTheWatchDidNotTell(t *testing.T) {
	for _, opaque := range []bool{false, true} {
		t.Run(fmt.Sprintf("opaque versions: %t", opaque), func(t *testing.T) {
			r := selection(configMaps)
			r.Verify = time.Hour
			inBubble(t, r, func(api *scriptedapi.Server) { manyObjects(api); api.SetOpaqueVersions(opaque) }, func(b *bench) {
				b.recorder.take()
				v := b.views[0].Index.(*view)
				v.mu.Lock() // as if the server had left it out
				v.forget(v.index["default/a"].Object)
				stale, never := *v.index["default/b"].Object, *v.index["default/b"].Object
				stale.ResourceVersion = "1"
				v.put("default/b", indexed{Object: &stale})
				never.Identify("default/never", "default", "never")
				never.UID = "never"
				v.put("default/never", indexed{Object: &never})
				v.mu.Unlock()
				time.Sleep(time.Hour + 15*time.Minute)
				synctest.Wait()
				b.expectSet("added default/a inferred", "updated default/b inferred", "deleted default/never inferred")
				b.recorder.mu.Lock()
				defer b.recorder.mu.Unlock()
				if want := [][2]int{{4, 3}}; !slices.Equal(b.recorder.verified, want) {
					t.Errorf("compared and differed: %v, want %v", b.recorder.verified, want)
				}
			})
		})
	}
}

func TestAComparisonThatFailsIsTriedAgainAndCounted(t *testing.T) {
	inBubble(t, selection(configMaps), twoObjects, func(b *bench) {
		fail := 20
		unready := 0
		b.api.OnRequest(func(r *scriptedapi.Request) *scriptedapi.Fault {
			if fail > 0 && isComparison(r) {
				fail--
				if b.informer.Err() != nil {
					unready++
				}
				f := scriptedapi.Fail(http.StatusInternalServerError)
				return &f
			}
			return nil
		})
		b.restart(nil)
		time.Sleep(10 * time.Minute)
		if n := testutil.ToFloat64(b.metrics.verifications.WithLabelValues("configmaps", "configmaps", "failed")); n != 20 {
			t.Errorf("%v failures are counted", n)
		}
		if err := b.informer.Err(); unready < 3 || err != nil {
			t.Errorf("%d times it was not ready, and then: %v", unready, err)
		}
		if n := testutil.ToFloat64(b.metrics.verifications.WithLabelValues("configmaps", "configmaps", "same")); n < 1 {
			t.Errorf("%v comparisons succeeded", n)
		}
	})
}
