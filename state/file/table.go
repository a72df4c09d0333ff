package file

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/kbridge-io/kbridge/state"
)

// Buckets: meta holds single values; views and lanes hold one table each watch and
// each sink's part in one.
var (
	metaBucket  = []byte("meta")
	viewsBucket = []byte("views")
	lanesBucket = []byte("lanes")
	// dictionaries holds one table, of what bodies are packed with.
	dictionariesBucket = []byte("dictionaries")

	dictionariesName = []byte("all")

	formatKey  = []byte("format")
	ownerKey   = []byte("owner")
	rootKey    = []byte("root")
	infoKey    = []byte("info")
	recordsKey = []byte("records")
)

// laneSeparator stands between a sink and a watch, whose names do not have it.
const laneSeparator = "\x00"

func laneName(id state.LaneID) []byte { return []byte(id.Sink + laneSeparator + string(id.View)) }

// root is the record that the checks begin with: it says which tables there are, and
// each table's info says which records.
type root struct {
	tables  digest // of the infos
	epoch   uint32 // of the cluster's history
	residue uint64 // since when there is some, in seconds since 1970; zero: there is none
	stored  []byte
}

func readRoot(tx *bbolt.Tx) (*root, error) {
	stored := tx.Bucket(metaBucket).Get(rootKey)
	body, _, err := newScope(metaBucket, nil).open(rootKey, stored)
	if err != nil {
		return nil, err
	}
	r := &root{stored: stored}
	if r.tables, body, err = digestOf(body); err != nil {
		return nil, err
	}
	if len(body) != 4 && len(body) != 4+8 {
		return nil, errDamaged
	}
	r.epoch = binary.BigEndian.Uint32(body)
	if body = body[4:]; len(body) > 0 {
		r.residue = binary.BigEndian.Uint64(body)
	}
	return r, nil
}

func (r *root) write(tx *bbolt.Tx) error {
	body := binary.BigEndian.AppendUint32(r.tables.append(nil), r.epoch)
	if r.residue != 0 {
		body = binary.BigEndian.AppendUint64(body, r.residue)
	}
	value := newScope(metaBucket, nil).seal(rootKey, body)
	if bytes.Equal(value, r.stored) {
		return nil
	}
	return tx.Bucket(metaBucket).Put(rootKey, value)
}

// table is an info and records by key.
type table struct {
	scope   scope
	bucket  *bbolt.Bucket
	records digest
	info    []byte // JSON
	stored  []byte // the info's record
}

// openTable returns a table that is there, or nil.
func openTable(tx *bbolt.Tx, kind, name []byte) (*table, error) {
	b := tx.Bucket(kind).Bucket(name)
	if b == nil {
		return nil, nil
	}
	return newTable(b, kind, name)
}

func newTable(b *bbolt.Bucket, kind, name []byte) (t *table, err error) {
	t = &table{scope: newScope(kind, name), bucket: b, stored: b.Get(infoKey)}
	body, _, err := t.scope.open(infoKey, t.stored)
	if err != nil {
		return nil, err
	}
	if b.Bucket(recordsKey) == nil {
		return nil, errDamaged
	}
	t.records, t.info, err = digestOf(body)
	return t, err
}

// makeTable returns a table, which it makes if it is not there.
func makeTable(tx *bbolt.Tx, kind, name []byte) (*table, error) {
	t, err := openTable(tx, kind, name)
	if t != nil || err != nil {
		return t, err
	}
	b, err := tx.Bucket(kind).CreateBucket(name)
	if err != nil {
		return nil, err
	}
	if _, err := b.CreateBucket(recordsKey); err != nil {
		return nil, err
	}
	return &table{scope: newScope(kind, name), bucket: b}, nil
}

// each calls do with every record, and fails at the end if these were not all.
func (t *table) each(do func(key, record []byte) error) error {
	var have digest
	if err := t.bucket.Bucket(recordsKey).ForEach(func(key, stored []byte) error {
		record, seal, err := t.scope.open(key, stored)
		if err == nil {
			have.add(seal)
			err = do(key, record)
		}
		if err != nil {
			return fmt.Errorf("object %s: %w", key, err)
		}
		return nil
	}); err != nil {
		return err
	}
	if have != t.records {
		return errors.Join(errDamaged, fmt.Errorf("%d records where %d were stored, or others", have.count, t.records.count))
	}
	return nil
}

// write writes an info and changed records, in the order of their keys: neighbours
// share pages.
func write[T any](s *Store, t *table, r *root, info any, changed map[string]*T, encode func([]byte, *T) ([]byte, error)) error {
	keys := make([]string, 0, len(changed))
	for key := range changed {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	records := t.bucket.Bucket(recordsKey)
	lookup := records.Cursor() // Seek starts at the root, whatever has changed
	for _, k := range keys {
		key := []byte(k)
		found, old := lookup.Seek(key)
		if !bytes.Equal(found, key) {
			old = nil
		}
		if old != nil {
			if len(old) < sealSize {
				return errDamaged
			}
			t.records.remove(sealOf(old))
		}
		if v := changed[k]; v == nil {
			if old == nil {
				continue
			}
			if err := records.Delete(key); err != nil {
				return fmt.Errorf("object %s: %w", key, err)
			}
		} else {
			record, err := encode(s.buf[:0], v)
			if err != nil {
				return fmt.Errorf("object %s: %w", key, err)
			}
			s.buf = t.scope.seal(key, record)
			t.records.add(sealOf(s.buf))
			// bbolt keeps the value until the transaction ends: each needs its own bytes.
			if err := records.Put(key, s.values.clone(s.buf)); err != nil {
				return fmt.Errorf("object %s: %w", key, err)
			}
		}
	}
	encoded, err := json.Marshal(info)
	if err != nil {
		return err
	}
	stored := t.scope.seal(infoKey, append(t.records.append(nil), encoded...))
	if bytes.Equal(stored, t.stored) {
		return nil
	}
	if t.stored != nil {
		r.tables.remove(sealOf(t.stored))
	}
	r.tables.add(sealOf(stored))
	return t.bucket.Put(infoKey, stored)
}

// arena is where the values of a transaction are until it ends. The zero arena is empty.
type arena struct {
	chunks [][]byte
	used   int // of the chunks
}

// A chunk's size in bytes, and how many are kept for the next transaction.
const (
	chunkSize  = 64 << 10
	keptChunks = 32
)

// clone returns a copy of the value.
func (a *arena) clone(value []byte) []byte {
	if len(value) > chunkSize/4 {
		return slices.Clone(value)
	}
	if a.used == 0 || cap(a.chunks[a.used-1])-len(a.chunks[a.used-1]) < len(value) {
		if a.used++; a.used > len(a.chunks) {
			a.chunks = append(a.chunks, make([]byte, 0, chunkSize))
		}
	}
	chunk := &a.chunks[a.used-1]
	from := len(*chunk)
	*chunk = append(*chunk, value...)
	return (*chunk)[from:len(*chunk):len(*chunk)]
}

// reset ends what was cloned.
func (a *arena) reset() {
	clear(a.chunks[min(keptChunks, len(a.chunks)):])
	a.chunks, a.used = a.chunks[:min(keptChunks, len(a.chunks))], 0
	for i := range a.chunks {
		a.chunks[i] = a.chunks[i][:0]
	}
}

// forget removes the tables that are not to be kept, and returns how many they were.
func forget(tx *bbolt.Tx, r *root, kind []byte, keep map[string]bool) (int, error) {
	parent := tx.Bucket(kind)
	var gone [][]byte
	if err := parent.ForEachBucket(func(name []byte) error {
		if !keep[string(name)] {
			gone = append(gone, slices.Clone(name))
		}
		return nil
	}); err != nil {
		return 0, err
	}
	for _, name := range gone {
		t, err := openTable(tx, kind, name)
		if err != nil {
			return 0, err
		}
		r.tables.remove(sealOf(t.stored))
		if err := parent.DeleteBucket(name); err != nil {
			return 0, err
		}
	}
	return len(gone), nil
}
