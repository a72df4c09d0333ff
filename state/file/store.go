package file

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strings"
	"time"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/state"
)

// Contents implements state.Store.
func (s *Store) Contents() (c state.Contents, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		r, err := readRoot(tx)
		if err != nil {
			return err
		}
		c.Epoch = r.epoch
		if err := tx.Bucket(viewsBucket).ForEachBucket(func(name []byte) error {
			c.Views = append(c.Views, state.ViewID(name))
			return nil
		}); err != nil {
			return err
		}
		return tx.Bucket(lanesBucket).ForEachBucket(func(name []byte) error {
			sink, view, _ := strings.Cut(string(name), laneSeparator)
			c.Lanes = append(c.Lanes, state.LaneID{Sink: sink, View: state.ViewID(view)})
			return nil
		})
	})
	return c, err
}

// Info implements state.Store.
func (s *Store) Info(id state.ViewID) (info state.ViewInfo, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		t, err := openTable(tx, viewsBucket, []byte(id))
		if t == nil || err != nil {
			return err
		}
		if err := json.Unmarshal(t.info, &info); err != nil {
			return errors.Join(errDamaged, err)
		}
		return nil
	})
	return info, err
}

// LoadView implements state.Store.
func (s *Store) LoadView(id state.ViewID, each func(*event.Object) error) (info state.ViewInfo, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		if err := s.loadView(tx, id, &info, each); err != nil {
			return fmt.Errorf("watch %s: %w", id, err)
		}
		return nil
	})
	return info, err
}

func (s *Store) loadView(tx *bbolt.Tx, id state.ViewID, info *state.ViewInfo, each func(*event.Object) error) error {
	t, err := openTable(tx, viewsBucket, []byte(id))
	if t == nil || err != nil {
		return err
	}
	if err := json.Unmarshal(t.info, info); err != nil {
		return errors.Join(errDamaged, err)
	}
	return t.each(func(_, record []byte) error {
		o, err := s.codec.object(&fields{rest: record})
		if err != nil {
			return err
		}
		s.calling = true
		err = each(o)
		s.calling = false
		return err
	})
}

// LoadLane implements state.Store.
func (s *Store) LoadLane(id state.LaneID) (info state.LaneInfo, behind map[string]state.Behind, known bool, err error) {
	err = s.view(func(tx *bbolt.Tx) error {
		t, err := openTable(tx, lanesBucket, laneName(id))
		if t == nil && err == nil {
			return nil
		}
		known, behind = true, map[string]state.Behind{}
		if err == nil {
			err = s.loadLane(t, &info, behind)
		}
		if err != nil {
			return fmt.Errorf("sink %s, watch %s: %w", id.Sink, id.View, err)
		}
		return nil
	})
	return info, behind, known, err
}

func (s *Store) loadLane(t *table, info *state.LaneInfo, behind map[string]state.Behind) error {
	if err := json.Unmarshal(t.info, info); err != nil {
		return errors.Join(errDamaged, err)
	}
	return t.each(func(key, record []byte) error {
		entry, err := s.codec.behind(record)
		behind[string(key)] = entry
		return err
	})
}

// Commit implements state.Store.
func (s *Store) Commit(b *state.Batch) error {
	clear(s.codec.added)
	err := s.update(func(tx *bbolt.Tx, r *root) error {
		if b.Epoch != 0 {
			r.epoch = b.Epoch
		}
		for id, change := range b.Views {
			t, err := makeTable(tx, viewsBucket, []byte(id))
			if err == nil {
				err = write(s, t, r, change.Info, change.Objects, s.codec.appendObject)
			}
			if err != nil {
				return fmt.Errorf("watch %s: %w", id, err)
			}
		}
		for id, change := range b.Lanes {
			t, err := makeTable(tx, lanesBucket, laneName(id))
			if err == nil {
				err = write(s, t, r, change.Info, change.Behind, s.codec.appendBehind)
			}
			if err != nil {
				return fmt.Errorf("sink %s, watch %s: %w", id.Sink, id.View, err)
			}
		}
		return s.writeDictionaries(tx, r)
	})
	if err == nil {
		for _, d := range s.codec.added {
			s.codec.dictionaries[d.ID()] = d
		}
	}
	return err
}

// Retain implements state.Store.
func (s *Store) Retain(views map[state.ViewID]string, lanes []state.LaneID) error {
	err := s.update(func(tx *bbolt.Tx, r *root) error {
		keep := map[string]bool{}
		for id := range views {
			keep[string(id)] = true
		}
		gone, err := forget(tx, r, viewsBucket, keep)
		if err != nil {
			return err
		}
		clear(keep)
		for _, id := range lanes {
			keep[string(laneName(id))] = true
		}
		if _, err := forget(tx, r, lanesBucket, keep); err != nil {
			return err
		}
		if err := s.name(tx, r, views); err != nil {
			return err
		}
		others, err := underOthers(tx, views)
		if (gone > 0 || len(others) > 0) && r.residue == 0 {
			r.residue = uint64(time.Now().Unix())
		}
		return err
	})
	if err == nil {
		s.rules, s.wiped = maps.Clone(views), 0
	}
	return err
}

// name makes the tables of watches that are not stored yet, with their rules: a kill in
// the first batch of one leaves bodies where nothing refers to them, which are to go like
// others when the watch does.
func (s *Store) name(tx *bbolt.Tx, r *root, views map[state.ViewID]string) error {
	for id, rules := range views {
		t, err := openTable(tx, viewsBucket, []byte(id))
		if t != nil || err != nil {
			if err != nil {
				return err
			}
			continue
		}
		if t, err = makeTable(tx, viewsBucket, []byte(id)); err == nil {
			err = write(s, t, r, state.ViewInfo{Rules: rules}, nil, s.codec.appendObject)
		}
		if err != nil {
			return fmt.Errorf("watch %s: %w", id, err)
		}
	}
	return nil
}
