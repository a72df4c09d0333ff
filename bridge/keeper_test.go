package bridge

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// versions are the versions of what is stored of the objects, in order of name.
func (v memoryView) versions() string {
	var list []string
	for _, o := range v.objects {
		list = append(list, o.UID+"/"+o.ResourceVersion)
	}
	slices.Sort(list)
	return strings.Join(list, " ")
}

func wantStored(t *testing.T, m *memory, position, objects string) {
	t.Helper()
	if v := m.view(); v.info.Position != position || v.versions() != objects {
		t.Errorf("stored are %q at %q, want %q at %q", v.versions(), v.info.Position, objects, position)
	}
}

func TestIndexAndPositionAreStoredTogetherBehindTheAcknowledgements(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		l := start(t, m, s, setup{}, d)
		l.list()
		d.run()
		hold(d)
		s.has("a", "b")
		l.sync()
		l.store()
		wantStored(t, m, "0", "")
		d.answer(1)
		l.store()
		wantStored(t, m, "1", "a1/1")
		s.has("c")
		s.gone("a")
		l.sync()
		synctest.Wait()
		d.mu.Lock() // c and a before b
		d.open = append(d.open[1:], d.open[0])
		d.mu.Unlock()
		d.answer(2)
		l.store()
		wantStored(t, m, "1", "a1/1")
		d.answer(1)
		l.store()
		wantStored(t, m, "4", "b1/2 c1/3")
		s.version = 9
		bookmark(l)
		l.store()
		wantStored(t, m, "9", "b1/2 c1/3")
		commits := m.commits
		l.store()
		if m.commits != commits {
			t.Error("a batch is stored although nothing has changed")
		}
	})
}

func TestThePositionFollowsTheSlowerSink(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, quick, slow := newMemory(), newAPIServer(), &desk{flow: true}, &desk{}
		l := start(t, m, s, setup{}, quick, slow)
		l.list()
		slow.run()
		hold(slow)
		s.has("a", "b")
		l.sync()
		synctest.Wait()
		slow.answer(1)
		l.store()
		wantStored(t, m, "1", "a1/1")
		if p := m.lane("sink0").info.Position; p != "2" {
			t.Errorf("the quick sink's position is %q", p)
		}
		l.kill()

		// The watch goes on for the slower one, and the quicker one has it all.
		s.has("b")
		quick2, slow2 := &desk{flow: true}, &desk{flow: true}
		l = start(t, m, s, setup{}, quick2, slow2)
		l.resume()
		l.drain()
		quick2.wants(t, 0, "updated b1/3")
		slow2.wants(t, 0, "added b1/2", "updated b1/3")
		if n := l.rigs[0].sum("kbridge_filtered_total"); n != 1 {
			t.Errorf("%d are counted as known", n)
		}
	})
}

func TestASinkThatIsBehindHoldsNoPositionAndGoesOnFromItsRecords(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		l := start(t, m, s, setup{change: []change{folds}}, d)
		l.list()
		d.run()
		s.has("k", "g", "r")
		l.sync()
		synctest.Wait()
		hold(d)
		s.has("w", "x", "y", "z")
		l.sync()
		done := make(chan struct{})
		go func() { s.has("k"); s.gone("g", "r"); s.has("r", "new"); l.sync(); close(done) }()
		<-done
		l.store()
		wantStored(t, m, "12", "k1/8 new1/12 r2/11 w1/4 x1/5 y1/6 z1/7")
		behind := m.lane("sink0").behind
		for key, want := range map[string]string{
			"shop/k": "k1/1", "shop/g": "g1/2 gone", "shop/r": "r1/3 gone", "shop/new": "/", "shop/w": "/", "shop/z": "/",
		} {
			r, ok := behind[key]
			got := r.UID + "/" + r.ResourceVersion
			if r.Gone != nil {
				got += " gone"
			}
			if !ok || got != want {
				t.Errorf("the record of %s is %q, want %q", key, got, want)
			}
		}
		if len(behind) != 8 {
			t.Errorf("%d records", len(behind))
		}
		l.kill()

		d = &desk{flow: true}
		l = start(t, m, s, setup{}, d)
		l.resume() // nothing comes
		l.drain()
		got := d.told()
		slices.Sort(got)
		want := []string{"added new1/12 inferred", "added r2/11 inferred", "added w1/4 inferred", "added x1/5 inferred", "added y1/6 inferred", "added z1/7 inferred",
			"deleted g1/9 inferred", "deleted r1/10 inferred", "updated k1/8 inferred"}
		if !slices.Equal(got, want) {
			t.Errorf("the sink got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		l.store()
		if behind := m.lane("sink0").behind; len(behind) != 0 {
			t.Errorf("it has caught up, and %d records are left", len(behind))
		}
	})
}

// A change in the window from before the sink fell behind is followed by what was
// folded: once it has arrived, the position passes, and the record has to be there.
func TestWhatIsFoldedBehindAnOpenEventIsRecordedWhenThatIsDealtWith(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		l := start(t, m, s, setup{change: []change{folds, func(o *Options) { o.MaxEvents = 8 }}}, d)
		l.list()
		d.run()
		hold(d)
		s.has("a", "b", "c", "d", "e", "f", "g", "k")
		l.sync()
		s.has("k")
		l.sync() // folded after five seconds
		d.answer(7)
		if !l.rigs[0].isFolding() || l.rigs[0].open() != 1 {
			t.Fatal("k1/9 is sent before there is a record of what it stands for")
		}
		l.store()
		synctest.Wait()
		if l.rigs[0].isFolding() || l.rigs[0].open() != 2 {
			t.Fatal("k1/9 is not in the window, behind k1/8")
		}
		d.answer(1)
		l.store()
		wantStored(t, m, "9", "a1/1 b1/2 c1/3 d1/4 e1/5 f1/6 g1/7 k1/9")
		if r, ok := m.lane("sink0").behind["shop/k"]; !ok || r.ResourceVersion != "8" {
			t.Errorf("the position has passed a change that is neither acknowledged nor recorded: %+v", r)
		}
	})
}

// A first snapshot that begins before the state has its id would begin anew under
// another one after a kill, with events that a broker drops as repeats.
func TestAFirstSnapshotBeginsWhenTheStateHasIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a", "b")
		l := start(t, m, s, setup{}, d)
		l.feed.ListBegins("S")
		for _, name := range []string{"a", "b"} {
			l.mu.Lock()
			if err := l.set(s.objects[name], event.Delta{Snapshot: "S"}); err != nil {
				t.Fatal(err)
			}
			l.mu.Unlock()
		}
		time.Sleep(time.Minute)
		d.wants(t, 0)
		m.fail = errDisk // what can not be stored does not stop delivery
		if err := l.keeper.Store(); !errors.Is(err, errDisk) {
			t.Error(err)
		}
		synctest.Wait()
		d.wants(t, 0, "started S", "added a1/1 in S", "added b1/2 in S")
	})
}

// An event that is tried again and again holds up neither what is stored of the watch
// nor of what another sink has been told.
func TestAnEventThatTakesLongIsRecordedAndHoldsNothingUp(t *testing.T) {
	for _, fold := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			m, s, stuck, quick := newMemory(), newAPIServer(), &desk{}, &desk{flow: true}
			with := setup{change: []change{func(o *Options) { o.Fold, o.FoldAfter = fold, 5*time.Second }}}
			l := start(t, m, s, with, stuck, quick)
			l.list()
			stuck.run()
			hold(stuck)
			s.has("a", "b")
			l.sync()
			synctest.Wait()
			l.store()
			wantStored(t, m, "0", "")
			time.Sleep(settleAfter + time.Millisecond)
			l.store()
			if !fold {
				wantStored(t, m, "0", "") // what is not to be folded is told again by the watch
				return
			}
			wantStored(t, m, "2", "a1/1 b1/2")
			if n := len(m.lane("sink0").behind); n != 2 {
				t.Errorf("%d records of two events under way", n)
			}
			l.kill()
			s.gone("a")
			stuck, again := &desk{flow: true}, &desk{flow: true}
			l = start(t, m, s, with, stuck, again)
			l.known.Position = "" // the server has lost its history
			l.resume()
			l.drain()
			again.wants(t, 0, "deleted a1/1 inferred")
			// What is recorded may be sent before the list has told that a is gone.
			got := slices.DeleteFunc(stuck.told(), func(s string) bool { return s == "added a1/1 inferred" })
			slices.Sort(got)
			if !slices.Equal(got, []string{"added b1/2 inferred", "deleted a1/1 inferred"}) {
				t.Errorf("the sink that had nothing for sure got %s", stuck.told())
			}
		})
	}
}

// A backup brings an object back whose deletion was recorded and, what nobody knows,
// delivered: the sink is told of it again.
func TestAnObjectThatIsBackAfterItsDeletionWasRecordedIsToldAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		with := setup{change: []change{folds}}
		l := start(t, m, s, with, d)
		s.has("a")
		l.list()
		l.drain()
		l.store()
		hold(d)
		before := s.objects["a"]
		s.gone("a")
		l.sync()
		time.Sleep(settleAfter + time.Millisecond)
		l.store()
		d.answer(1)
		l.kill()

		s.objects["a"] = before
		d = &desk{flow: true}
		l = start(t, m, s, with, d)
		l.known.Position = ""
		l.resume()
		l.drain()
		// The end that was recorded may go out before the list comes to the object.
		got := d.told()
		if n := len(got); n == 0 || n > 2 || !strings.Contains(got[n-1], "a1/1") || strings.HasPrefix(got[n-1], "deleted") || n == 2 && !strings.HasPrefix(got[0], "deleted") {
			t.Errorf("the sink, which may have been told that a has gone, got %s", got)
		}
	})
}

// A sink's record is of later than the index, which waits for the slowest sink. Then a
// backup is restored in which the object is as the index has it: no delta comes of it.
func TestAnObjectThatABackupBroughtBackAsTheIndexHasItIsToldAgain(t *testing.T) {
	for name, test := range map[string]struct {
		epoch   uint32 // of what the index has
		resumes bool   // there is no list
		there   bool
		last    string
	}{
		"it is back":                           {0, false, true, "a1/5"},
		"it is gone":                           {0, false, false, "deleted"},
		"it was back when it was stored":       {1, true, true, "a1/5"},
		"it was back and is gone in a list":    {1, false, false, "deleted"},
		"the watch goes on, and tells its end": {0, true, false, "deleted"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
				indexed, gone := thing("a", "a1", 5), thing("a", "a1", 9)
				indexed.Epoch = test.epoch
				m.views[viewName] = memoryView{state.ViewInfo{Position: "6", Listed: true, Cluster: "cluster", Version: "v1"}, map[string]*event.Object{"shop/a": indexed}}
				m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{
					state.LaneInfo{Position: "10"},
					map[string]state.Behind{"shop/a": {UID: "a1", ResourceVersion: "8", Gone: gone}},
				}
				l := start(t, m, s, setup{}, d)
				s.version = 7
				if test.there {
					s.objects["a"] = indexed
				} else {
					s.history = append(s.history, serverStep{9, gone, true})
					s.version = 9
				}
				if test.resumes {
					l.resume()
				} else {
					l.list()
				}
				l.drain()
				got := d.told()
				if len(got) == 0 || !strings.Contains(got[len(got)-1], test.last) || test.there && strings.HasPrefix(got[len(got)-1], "deleted") {
					t.Errorf("the sink got %s", got)
				}
			})
		})
	}
}

// The index is older than the records, and a list is to come: what it has of an object may
// be what the sink was told the end of. That is not announced again before the list has
// been compared.
func TestWhatASinkIsBehindOnWaitsForAList(t *testing.T) {
	for name, position := range map[string]string{"the list before was cut short": "", "the history is lost": "6"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
				m.views[viewName] = memoryView{state.ViewInfo{Position: position, Listed: true, Cluster: "cluster", Version: "v1"}, map[string]*event.Object{"shop/a": thing("a", "a1", 5)}}
				// It was told that a1 has gone, and has not answered for a2.
				m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{state.LaneInfo{Position: "20"}, map[string]state.Behind{"shop/a": {}}}
				l := start(t, m, s, setup{}, d)
				time.Sleep(time.Minute)
				d.wants(t, 0)
				s.version, s.objects["a"] = 30, thing("a", "a2", 15)
				s.objects["b"] = thing("b", "b1", 16)
				l.feed.ListBegins("")
				if err := l.set(s.objects["b"], event.Delta{Inferred: true}); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				d.wants(t, 0, "added b1/16 inferred")
				l.list()
				l.drain()
				d.wants(t, 1, "deleted a1/5 inferred", "added a2/15 inferred")
			})
		})
	}
}

// A backup has brought an object back as the index has it, and the watch says so: whatever
// the sink was told meanwhile, it is told this state again, also after another kill.
func TestAStateThatAnotherHistoryHasTooIsToldAgain(t *testing.T) {
	for name, records := range map[string]map[string]state.Behind{
		"the sink was ahead of the index":         nil,
		"it was behind and had that very version": {"shop/a": {UID: "a1", ResourceVersion: "5"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, s, d := newMemory(), newAPIServer(), &desk{}
				before, after := thing("a", "a1", 5), thing("a", "a1", 5)
				after.Epoch = 1
				m.views[viewName] = memoryView{state.ViewInfo{Position: "6", Listed: true, Cluster: "cluster", Version: "v1"}, map[string]*event.Object{"shop/a": before}}
				m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{state.LaneInfo{Position: "10"}, records}
				with := setup{change: []change{folds}}
				l := start(t, m, s, with, d)
				l.feed.ListBegins("")
				if err := l.deliver(event.Delta{Type: event.Updated, Object: after, Old: before, Inferred: true}); err != nil {
					t.Fatal(err)
				}
				l.feed.ListEnds("20")
				l.store()
				d.wants(t, 0, "updated a1/5 inferred")
				time.Sleep(settleAfter + time.Millisecond)
				l.store() // it is recorded as behind, and the index has passed it
				l.kill()
				wantStored(t, m, "20", "a1/5")

				d = &desk{flow: true}
				l = start(t, m, s, with, d)
				l.feed.Resumes("20")
				l.drain()
				d.wants(t, 0, "updated a1/5 inferred")
			})
		})
	}
}

// After a kill the sink may have received any of the objects of one name that came and went.
func TestDeletionsThatMayHaveBeenSentBeforeAKillWaitForRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		m.views[viewName] = memoryView{state.ViewInfo{Position: "1", Listed: true, Cluster: "cluster", Version: "v1"}, nil}
		m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{
			state.LaneInfo{Position: "1"},
			map[string]state.Behind{"shop/a": {UID: "a0", ResourceVersion: "1", Gone: thing("a", "a0", 1)}},
		}
		s.version = 1
		const made = 20
		for range made {
			s.has("a")
			s.gone("a")
		}
		l := start(t, m, s, setup{change: []change{folds}}, d)
		l.resume()
		for n := 0; n < made+1; n++ {
			l.store()
			if err := l.rigs[0].check(); err != nil {
				t.Fatal(err)
			}
			d.answer(1)
		}
		d.run()
		l.drain()
		if got := d.told(); len(got) != made+1 || !strings.HasPrefix(got[0], "deleted a0/") || !strings.HasPrefix(got[made], fmt.Sprintf("deleted a%d/", made)) {
			t.Errorf("the sink got %s", got)
		}
	})
}

// A batch takes many times its size while it is written.
func TestManyObjectsAreStoredInBatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		const count = 2*storeObjects + 7
		for n := range count {
			s.has(fmt.Sprint("o", n))
		}
		l := start(t, m, s, setup{}, d)
		l.list()
		l.drain()
		l.store()
		if v := m.view(); m.largest > storeObjects || len(v.objects) != count || !v.info.Listed || v.info.Position != fmt.Sprint(count) {
			t.Errorf("%d of %d objects are stored, %d at once, listed=%t at %q", len(v.objects), count, m.largest, v.info.Listed, v.info.Position)
		}
		// What can not be stored is held once for each object, however often it changes.
		m.fail = errDisk
		for range 3 {
			for n := range storeObjects + 7 {
				s.has(fmt.Sprint("o", n))
			}
			l.sync()
			l.drain()
			_ = l.keeper.Store()
		}
		if n := len(l.feed.journal.pending); n > 0 {
			t.Errorf("%d changes are held for %d objects", n, storeObjects+7)
		}
	})
}

// What is under way when the state is stored may arrive after: its deletion is not
// to be folded away.
func TestADeletionIsNotFoldedAwayWhereTheAdditionMayHaveArrived(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		s.has("a", "b")
		l := start(t, m, s, setup{}, d)
		l.list()
		synctest.Wait()
		d.answer(1) // started
		l.store()   // a and b are under way
		d.answer(2) // they arrive, and nothing is stored any more
		l.kill()
		s.gone("a")

		d = &desk{}
		l = start(t, m, s, setup{}, d)
		l.resume()
		d.run()
		l.drain()
		got := d.told()
		if !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "deleted a1/") }) {
			t.Errorf("the sink was told of a, and not that it has gone: %s", got)
		}
	})
}

func TestADeltaThatWasLostIsNeverPassed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		l := start(t, m, s, setup{types: []event.Type{event.Added}, change: []change{func(o *Options) { o.MaxEvents = 1 }}}, d)
		l.list()
		d.run()
		hold(d)
		s.has("a")
		l.sync()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		l.ctx = ctx
		s.has("b")
		l.sync() // waits for room, and the daemon stops
		if ctx.Err() == nil {
			t.Fatal("it had room")
		}
		s.has("a") // is filtered
		l.sync()
		d.run()
		l.store()
		wantStored(t, m, "1", "a1/1")
	})
}

func TestABatchThatCannotBeStoredIsStoredWithTheNext(t *testing.T) {
	for _, late := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
			l := start(t, m, s, setup{}, d)
			l.list()
			l.drain()
			l.store()
			m.fail, m.late = errDisk, late
			for _, name := range []string{"a", "b", "a"} {
				s.has(name)
				l.sync()
				l.drain()
				if err := l.keeper.Store(); !errors.Is(err, errDisk) || !errors.Is(l.keeper.Err(), errDisk) {
					t.Errorf("%v, %v", err, l.keeper.Err())
				}
			}
			m.fail = nil
			l.store()
			wantStored(t, m, "3", "a1/3 b1/2")
			if err := l.keeper.Err(); err != nil {
				t.Error(err)
			}
			if p := m.lane("sink0").info.Position; p != "3" {
				t.Errorf("the sink's position is %q", p)
			}
		})
	}
}

// A batch of many records wants to be written at once, and not at once again where the disk
// fails.
func TestADiskThatFailsIsNotGivenALargeBatchAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		for n := range storeObjects + 7 {
			s.has(fmt.Sprint("o", n))
		}
		l := start(t, m, s, setup{}, d)
		go l.list() // nothing is acknowledged: each object is owed to the sink
		synctest.Wait()
		m.mu.Lock()
		m.fail = errDisk
		m.calls = 0
		m.mu.Unlock()
		ended := make(chan error, 1)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { ended <- l.keeper.Run(ctx) }()
		time.Sleep(2 * time.Minute)
		if n := m.tried(); n < 10 || n > 20 {
			t.Errorf("%d attempts in two minutes", n)
		}
		m.mu.Lock()
		m.fail = nil
		m.mu.Unlock()
		time.Sleep(longestStorePause + storeEvery)
		if n := len(m.lane("sink0").behind); n < storeObjects {
			t.Errorf("of %d records %d are stored", storeObjects+7, n)
		}
		cancel()
		<-ended
		d.run()
		for _, r := range l.rigs {
			r.drain()
		}
	})
}

func TestTheKeeperStoresEachSecondAndEndsWhenItIsFenced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		l := start(t, m, s, setup{}, d)
		l.list()
		ended := make(chan error, 1)
		go func() { ended <- l.keeper.Run(t.Context()) }()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		wantStored(t, m, "0", "")
		s.has("a")
		l.sync()
		time.Sleep(1100 * time.Millisecond)
		synctest.Wait()
		wantStored(t, m, "1", "a1/1")
		m.mu.Lock()
		m.fail = fmt.Errorf("store: %w", state.ErrFenced)
		m.mu.Unlock()
		s.has("a")
		l.sync()
		if err := <-ended; !errors.Is(err, state.ErrFenced) {
			t.Errorf("Run returns %v", err)
		}
	})
}

func TestANewSinkGetsAFirstSnapshotOfWhatIsThere(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a", "b")
		l := start(t, m, s, setup{}, d)
		l.list()
		l.drain()
		l.store()
		l.kill()
		before := len(d.told())
		fresh := &desk{flow: true}
		l = start(t, m, s, setup{}, d, fresh)
		s.has("a")
		l.drain()
		l.resume()
		l.drain()
		d.wants(t, before, "updated a1/3")
		got := fresh.told()
		if len(got) != 5 || !strings.HasPrefix(got[0], "started ") || !strings.HasPrefix(got[3], "completed ") || got[4] != "updated a1/3" {
			t.Errorf("%s", got)
		}
		if count, version := fresh.completed(t, 0); count != 2 || version != "2" {
			t.Errorf("%d events at %s", count, version)
		}
	})
}

// Where the server has nothing that is newer than what was stored, a snapshot need not
// wait for the watch to say so.
func TestAStartWithoutNewsIsCertainAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a")
		l := start(t, m, s, setup{}, d)
		l.list()
		l.drain()
		l.store()
		l.kill()
		d = &desk{flow: true}
		l = start(t, m, s, setup{}, d)
		l.feed.Resumes("1")
		began := time.Now()
		if err := snapshotAll(t.Context(), l.feed, "R"); err != nil {
			t.Error(err)
		}
		if waited := time.Since(began); waited > time.Second {
			t.Errorf("the snapshot waits %s", waited)
		}
		d.wants(t, 0, "started R", "synced a1/1 in R", "completed R")
	})
}

func TestANewSinkIsNotToldOfTheEndOfWhatItNeverHad(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a", "b")
		l := start(t, m, s, setup{}, d)
		l.list()
		l.drain()
		l.store()
		l.kill()
		s.gone("a")
		fresh := &desk{flow: true}
		l = start(t, m, s, setup{}, d, fresh)
		l.sync() // before the snapshot of the new sink begins
		l.resume()
		l.drain()
		got := fresh.told()
		if len(got) != 3 || !strings.HasPrefix(got[1], "added b1/2 in ") {
			t.Errorf("the new sink got %s", got)
		}
	})
}

// A first list that was cut short has left objects in the index. A sink that is new
// then is owed them as well: the list that follows says nothing of what is known.
func TestASinkThatIsNewWhileAFirstListIsUnfinishedGetsAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a", "b")
		l := start(t, m, s, setup{}, d)
		l.feed.ListBegins("S")
		l.mu.Lock()
		if err := l.set(s.objects["a"], event.Delta{Snapshot: "S"}); err != nil {
			t.Fatal(err)
		}
		l.mu.Unlock()
		l.drain()
		l.store()
		l.kill()
		wantStored(t, m, "", "a1/1")
		fresh := &desk{flow: true}
		l = start(t, m, s, setup{}, d, fresh)
		l.resume()
		l.drain()
		var added []string
		for _, told := range fresh.told() {
			if strings.HasPrefix(told, "added ") {
				added = append(added, strings.Fields(told)[1])
			}
		}
		slices.Sort(added)
		if !slices.Equal(added, []string{"a1/1", "b1/2"}) {
			t.Errorf("the new sink got %s", fresh.told())
		}
	})
}

func TestASnapshotThatWasCutShortKeepsItsID(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		s.has("a", "b", "c")
		l := start(t, m, s, setup{}, d)
		l.list()
		synctest.Wait()
		d.answer(2) // started and one
		l.store()
		l.kill()
		d = &desk{flow: true}
		l = start(t, m, s, setup{}, d)
		l.resume()
		l.drain()
		got := d.told()
		if len(got) != 4 || got[0] != "started S3" || got[3] != "completed S3" || !strings.HasSuffix(got[1], " in S3") {
			t.Errorf("%s", got)
		}
		if count, _ := d.completed(t, 0); count != 3 {
			t.Errorf("%d events, of which one was sent before the stop", count)
		}

		// And one that says again what is there.
		hold(d)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = snapshotAll(ctx, l.feed, "R") }()
		d.answer(2)
		l.store()
		l.kill()
		cancel()
		for range 3 { // however often it is stopped before it can begin
			d = &desk{flow: true}
			l = start(t, m, s, setup{}, d)
			if l.known.Again["sink0"] != "R" || l.known.Snapshot != "" {
				t.Fatalf("the state knows of %q and %q", l.known.Again, l.known.Snapshot)
			}
			l.store()
			l.kill()
		}
		l = start(t, m, s, setup{}, d)
		l.resume()
		if err := snapshotAll(t.Context(), l.feed, l.known.Again["sink0"]); err != nil {
			t.Error(err)
		}
		d.wants(t, 0, "started R", "synced a1/1 in R", "synced b1/2 in R", "synced c1/3 in R", "completed R")
		l.store()
		if s := m.lane("sink0").info.Snapshot; s != nil {
			t.Errorf("%+v is stored as unfinished", s)
		}
	})
}

func TestAnotherClusterOrVersionVoidsThePosition(t *testing.T) {
	for _, with := range []setup{{cluster: "other"}, {version: "v2"}, {}} {
		synctest.Test(t, func(t *testing.T) {
			m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
			s.has("a")
			l := start(t, m, s, setup{}, d)
			l.list()
			l.drain()
			l.store()
			l.kill()
			l = start(t, m, s, with, d)
			want := ""
			if with.cluster+with.version == "" {
				want = "1"
			}
			if epoch := l.keeper.history.Epoch(); (epoch > 0) != (with.cluster != "") {
				t.Errorf("%+v: epoch %d", with, epoch)
			}
			if l.known.Position != want || !l.known.Listed || len(l.known.Objects) != 1 {
				t.Errorf("%+v: the state knows %d objects at %q", with, len(l.known.Objects), l.known.Position)
			}
			l.store()
			if v := m.view(); v.info.Position != want {
				t.Errorf("stored is %q", v.info.Position)
			}
		})
	}
}

func TestUnderOtherRulesBodiesAreScannedAgainBeforeAnythingIsSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		l := start(t, m, s, setup{change: []change{folds}, rules: Rules{Name: "old"}}, d)
		l.list()
		d.run()
		s.has("a", "g")
		l.sync()
		synctest.Wait()
		hold(d)
		s.has("w", "x", "y", "z")
		l.sync()
		s.has("a")
		s.gone("g")
		l.sync()
		l.store()
		l.kill()
		d = &desk{flow: true}
		scanned := 0
		rules := Rules{Name: "new", Rescan: func(from string, o *event.Object) *event.Object {
			if from != "old" {
				t.Errorf("scanned again as from the rules %q", from)
			}
			scanned++
			c := *o
			c.Body = bytes.Replace(slices.Clone(o.Body), []byte(`"kind":"Thing"`), []byte(`"kind":"Clean"`), 1)
			return &c
		}}
		l = start(t, m, s, setup{rules: rules}, d)
		l.resume()
		l.drain()
		if scanned != 6 || len(d.told()) != 6 {
			t.Errorf("%d bodies were scanned, %s", scanned, d.told())
		}
		for _, value := range d.values {
			if !strings.Contains(value, `"kind":"Clean"`) {
				t.Errorf("the sink got %s", value)
			}
		}
		l.store()
		for key, o := range m.view().objects {
			if !strings.Contains(string(o.Body), "Clean") {
				t.Errorf("%s is stored as it was", key)
			}
		}
		if m.view().info.Rules != "new" {
			t.Error("the new rules are not stored")
		}
		l.kill()
		rules.Rescan = func(string, *event.Object) *event.Object { t.Error("scanned again under the same rules"); return nil }
		start(t, m, s, setup{rules: rules}, d)
	})
}

func TestADoubtfulObjectIsNotPassedOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, slow, ahead := newMemory(), newAPIServer(), &desk{}, &desk{}
		with := setup{change: []change{func(o *Options) {
			if o.Sink.Name() == "sink1" {
				folds(o)
			}
		}}}
		l := start(t, m, s, with, slow, ahead)
		l.list()
		slow.run()
		ahead.run()
		s.has("k")
		l.sync()
		synctest.Wait()
		hold(slow)
		hold(ahead)
		s.has("w", "x", "y", "z")
		l.sync()
		s.has("k") // folded for the one, and in the window of the other
		l.sync()
		l.store()
		wantStored(t, m, "1", "k1/1")
		if p := m.lane("sink1").info.Position; p != "6" {
			t.Errorf("the sink that folds is at %q", p)
		}
		l.kill()
		slow, ahead = &desk{flow: true}, &desk{flow: true}
		l = start(t, m, s, with, slow, ahead)
		l.resume()
		l.drain()
		for _, d := range []*desk{slow, ahead} {
			got := d.told()
			if len(got) < 5 || !slices.ContainsFunc(got, func(s string) bool { return strings.HasPrefix(s, "updated k1/6") }) {
				t.Errorf("%s", got)
			}
		}
	})
}

// The record of a sink that is ahead of the index must not be sent before the watch
// has told again what led to it: a consumer would hear of an end, and then of what
// came before it.
func TestWhatASinkIsBehindOnWaitsForWhatTheWatchSaysAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, slow, ahead := newMemory(), newAPIServer(), &desk{}, &desk{}
		with := setup{change: []change{func(o *Options) {
			if o.Sink.Name() == "sink1" {
				folds(o)
			}
		}}}
		l := start(t, m, s, with, slow, ahead)
		l.list()
		slow.run()
		ahead.run()
		s.has("k")
		l.sync()
		synctest.Wait()
		hold(slow)
		hold(ahead)
		s.has("w", "x", "y", "z", "k")
		s.gone("k")
		l.sync()
		l.store()
		wantStored(t, m, "1", "k1/1")
		l.kill()
		slow, ahead = &desk{flow: true}, &desk{flow: true}
		l = start(t, m, s, with, slow, ahead)
		time.Sleep(time.Minute)
		ahead.wants(t, 0) // the server does not answer yet
		l.resume()
		l.drain()
		ends := 0
		for i, told := range ahead.told() {
			if strings.HasPrefix(told, "deleted k1/") {
				ends = i + 1
			} else if ends > 0 && strings.Contains(told, " k1/") {
				t.Errorf("after its end the sink hears %s", told)
			}
		}
		if ends == 0 {
			t.Errorf("%s", ahead.told())
		}
	})
}

// The index is older than the record by several objects of one name: what the watch tells of
// them again is no news.
func TestWhatTheWatchSaysAgainOfEarlierObjectsIsNoNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{flow: true}
		s.has("a")
		m.views[viewName] = memoryView{state.ViewInfo{Position: "1", Listed: true, Cluster: "cluster", Version: "v1"}, map[string]*event.Object{"shop/a": s.objects["a"]}}
		s.gone("a")
		s.has("a")
		s.gone("a")
		s.has("a", "a") // a3, at 5 and 6
		m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{state.LaneInfo{Position: "6"}, map[string]state.Behind{"shop/a": {UID: "a3", ResourceVersion: "6"}}}
		s.has("a")
		l := start(t, m, s, setup{}, d)
		l.resume()
		l.drain()
		d.wants(t, 0, "updated a3/7 inferred")
	})
}

// The lanes run before the state is loaded: what a sink is behind on goes out
// although nothing happens.
func TestWhatASinkIsBehindOnGoesOutByItselfAfterAStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, s, d := newMemory(), newAPIServer(), &desk{}
		s.has("k")
		l := start(t, m, s, setup{}, d)
		l.list()
		d.run()
		l.drain()
		l.store()
		l.kill()
		m.lanes[state.LaneID{Sink: "sink0", View: viewName}].behind["shop/k"] = state.Behind{UID: "k1", ResourceVersion: "0"}
		d = &desk{flow: true}
		r := newRig(t, d.publish, func(o *Options) { o.Sink = named{testSink{d.publish}, "sink0"} })
		synctest.Wait()
		p := r.port()
		w := watchOf(t, p)
		keeper := NewKeeper(m, "cluster", &event.History{}, prometheus.NewRegistry(), slog.New(slog.DiscardHandler))
		feed, _, err := keeper.Load(viewName, "v1", Rules{}, w, p)
		if err != nil {
			t.Fatal(err)
		}
		feed.Resumes("1") // the watch has nothing to tell
		d.wants(t, 0, "updated k1/1 inferred")
	})
}

// The index waits for the slowest sink. What it has may be older than what a record
// says, and is then no news to the sink of that record.
func TestAnIndexThatIsOlderThanARecordIsNoNews(t *testing.T) {
	for _, c := range []struct {
		name, position string
		indexed        *event.Object
		record         state.Behind
		want           []string
	}{
		{"the sink has a later object of the name", "50", thing("k", "k1", 50), state.Behind{UID: "k2", ResourceVersion: "60"}, nil},
		{"the sink has a later state", "50", thing("k", "k1", 50), state.Behind{UID: "k1", ResourceVersion: "60"}, nil},
		{"the sink has an earlier state", "50", thing("k", "k1", 50), state.Behind{UID: "k1", ResourceVersion: "40"}, []string{"updated k1/50 inferred"}},
		{"the sink has nothing", "50", thing("k", "k1", 50), state.Behind{}, []string{"added k1/50 inferred"}},
		{"it has gone since", "", thing("k", "k1", 50), state.Behind{UID: "k1", ResourceVersion: "40", Gone: thing("k", "k1", 50)}, []string{"deleted k1/50 inferred"}},
		{"it has gone and come back", "90", thing("k", "k1", 80), state.Behind{UID: "k1", ResourceVersion: "40", Gone: thing("k", "k1", 70)}, []string{"deleted k1/70 inferred", "added k1/80 inferred"}},
		{"another has come", "90", thing("k", "k2", 80), state.Behind{UID: "k1", ResourceVersion: "40", Gone: thing("k", "k1", 70)}, []string{"deleted k1/70 inferred", "added k2/80 inferred"}},
		{"another has come, and nothing else tells of the end", "90", thing("k", "k2", 80), state.Behind{UID: "k1", ResourceVersion: "40"}, []string{"deleted k1/40 inferred", "added k2/80 inferred"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m, d := newMemory(), &desk{flow: true}
				m.views[viewName] = memoryView{state.ViewInfo{Position: c.position, Listed: true, Cluster: "cluster", Version: "v1"}, map[string]*event.Object{"shop/k": c.indexed}}
				m.lanes[state.LaneID{Sink: "sink0", View: viewName}] = memoryLane{state.LaneInfo{Position: c.position}, map[string]state.Behind{"shop/k": c.record}}
				l := start(t, m, newAPIServer(), setup{}, d)
				time.Sleep(time.Hour)
				d.wants(t, 0) // it is not known yet what the watch will tell again, or a list
				if c.position != "" {
					l.feed.Resumes(c.position)
				} else {
					l.list()
				}
				l.drain()
				d.wants(t, 0, c.want...)
			})
		})
	}
}

func TestTheJournalIsBoundedByTheObjectsWhileTheDiskHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, m, d := newAPIServer(), newMemory(), &desk{flow: true}
		l := start(t, m, s, setup{}, d)
		s.has("a", "b")
		l.list()
		l.drain()
		l.store()
		for range 20_000 {
			s.has("a")
			l.sync()
			s.history = nil
		}
		synctest.Wait()
		if n := l.keeper.Pending(); n > 2*minCompaction {
			t.Errorf("%d changes of one object are held", n)
		}
		l.drain()
		l.store()
		if v := m.view(); v.info.Position != strconv.Itoa(s.version) || v.objects["shop/a"].ResourceVersion != strconv.Itoa(s.version) {
			t.Errorf("at %s version %s is stored, want %d", v.info.Position, v.objects["shop/a"].ResourceVersion, s.version)
		}
	})
}

func TestTheJournalIsBoundedByTheObjectsWhateverASinkFilters(t *testing.T) {
	for _, fold := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			s, m, d := newAPIServer(), newMemory(), &desk{flow: true}
			l := start(t, m, s, setup{types: []event.Type{event.Deleted}, change: []change{func(o *Options) { o.Fold = fold }}}, d)
			s.has("a", "b")
			l.list()
			l.drain()
			l.store()
			hold(d)
			s.gone("a") // it is in flight, and stays so
			l.sync()
			synctest.Wait()
			largest := 0
			for range 200 {
				for i := range 100 {
					s.has("b", "c"+strconv.Itoa(i%10))
				}
				l.sync()
				s.history = nil
				l.store()
				largest = max(largest, l.feed.journal.length())
			}
			if largest > 3*minCompaction {
				t.Errorf("the journal had %d steps for a dozen objects", largest)
			}
			if o := m.view().objects["shop/b"]; !fold && o.ResourceVersion != "2" {
				t.Errorf("version %s of b is stored, before the deletion of a is acknowledged", o.ResourceVersion)
			}
			last := s.objects["b"].ResourceVersion
			d.run()
			l.drain()
			l.store()
			if v := m.view(); v.info.Position != strconv.Itoa(s.version) || v.objects["shop/b"].ResourceVersion != last || v.objects["shop/a"] != nil || len(v.objects) != 11 {
				t.Errorf("at %s %d objects are stored, want 11 at %d", v.info.Position, len(v.objects), s.version)
			}
		})
	}
}
