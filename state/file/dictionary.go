package file

import (
	"errors"
	"fmt"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/event"
)

// tooMany is the number of dictionaries from which on those that no body needs any more
// are looked for when the file is opened. Each has 64 KiB.
const tooMany = 16

// loadDictionaries reads what the bodies are packed with.
func (s *Store) loadDictionaries() error {
	if err := s.view(func(tx *bbolt.Tx) error {
		t, err := openTable(tx, dictionariesBucket, dictionariesName)
		if t == nil || err != nil {
			return err
		}
		return t.each(func(key, record []byte) error {
			d := event.NewDictionary(append([]byte(nil), record...))
			if d == nil || dictionaryKey(d.ID()) != string(key) {
				return errDamaged
			}
			s.codec.dictionaries[d.ID()] = d
			return nil
		})
	}); err != nil {
		return err
	}
	if len(s.codec.dictionaries) < tooMany {
		return nil
	}
	return s.forgetDictionaries()
}

// writeDictionaries writes those that the transaction's bodies are the first to need.
func (s *Store) writeDictionaries(tx *bbolt.Tx, r *root) error {
	if len(s.codec.added) == 0 {
		return nil
	}
	return s.changeDictionaries(tx, r, s.codec.added)
}

func (s *Store) changeDictionaries(tx *bbolt.Tx, r *root, changed map[string]*event.Dictionary) error {
	t, err := makeTable(tx, dictionariesBucket, dictionariesName)
	if err != nil {
		return err
	}
	return write(s, t, r, struct{}{}, changed, func(dst []byte, d *event.Dictionary) ([]byte, error) {
		return append(dst, d.Bytes()...), nil
	})
}

// forgetDictionaries removes those that no body needs.
func (s *Store) forgetDictionaries() error {
	unused := map[string]*event.Dictionary{}
	for id := range s.codec.dictionaries {
		unused[dictionaryKey(id)] = nil
	}
	used := func(f *fields) error {
		if id := f.dictionary(); !f.bad {
			delete(unused, dictionaryKey(id))
			return nil
		}
		return errDamaged
	}
	objects := func(_, record []byte) error { return used(&fields{rest: record}) }
	records := func(_, record []byte) error {
		_, f, err := readBehind(record)
		if err == nil && f != nil {
			err = used(f)
		}
		return err
	}
	err := s.update(func(tx *bbolt.Tx, r *root) error {
		if err := errors.Join(eachRecord(tx, viewsBucket, objects), eachRecord(tx, lanesBucket, records)); err != nil {
			return err
		}
		return s.changeDictionaries(tx, r, unused)
	})
	if err != nil {
		return fmt.Errorf("forget what is not needed: %w", err)
	}
	for id := range s.codec.dictionaries {
		if _, is := unused[dictionaryKey(id)]; is {
			delete(s.codec.dictionaries, id)
		}
	}
	return nil
}

// eachRecord calls do with every record of every table of that kind.
func eachRecord(tx *bbolt.Tx, kind []byte, do func(key, record []byte) error) error {
	return tx.Bucket(kind).ForEachBucket(func(name []byte) error {
		t, err := openTable(tx, kind, name)
		if err != nil {
			return err
		}
		return t.each(do)
	})
}
