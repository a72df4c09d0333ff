package file

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"io"
)

// bbolt trusts the pages of its file: one flipped bit makes it read outside of the
// file, run in circles, or panic in a goroutine of its own, and none of these can be
// caught. So before bbolt reads them, all pages in use are read here, with plain reads
// and without trust. What passes can not crash it; whether it is the right data is for
// the checksums to say.
//
// The layout is bbolt's version 2, in the byte order of the machine: a header of 16
// bytes (id, flags, count, overflow), then elements that point at keys and values
// behind them.

const (
	branchPage   = 0x01
	leafPage     = 0x02
	freelistPage = 0x10

	headerSize  = 16 // of a page
	elementSize = 16 // of a leaf's and of a branch's
	bucketSize  = 16 // of a bucket's value, before its inline page
	metaSize    = 64

	magic        = 0xED0CDAED
	layout       = 2
	noFreelist   = ^uint64(0)
	maxTreeDepth = 64 // a real one has about five levels, and four buckets in one another
)

// pages checks the pages of one file.
type pages struct {
	file    io.ReaderAt
	size    int64 // of a page, in bytes
	seen    []bool
	buffers [][]byte // by depth
}

// checkPages reads all pages that the file uses, and returns why bbolt could not.
func checkPages(file io.ReaderAt, fileSize int64, pageSize int) error {
	p := &pages{file: file, size: int64(pageSize)}
	root, freelist, end, err := p.newest()
	if err != nil {
		return err
	}
	if end > uint64(fileSize/p.size) {
		return fmt.Errorf("it was cut to %d of %d pages", fileSize/p.size, end)
	}
	p.seen = make([]bool, end)
	if freelist != noFreelist {
		if _, err := p.free(freelist); err != nil {
			return err
		}
	}
	return p.tree(root, 0, nil, nil)
}

// freePages says of each page of the file whether nothing refers to it: those in the list
// of free pages, and those behind the last one that was ever used, where a commit that
// failed may have written. As bbolt would open the file now, it may write over them all.
func freePages(file io.ReaderAt, fileSize int64, pageSize int) ([]bool, error) {
	p := &pages{file: file, size: int64(pageSize)}
	_, freelist, end, err := p.newest()
	if err != nil {
		return nil, err
	}
	if freelist == noFreelist {
		return nil, errors.New("it has no list of free pages")
	}
	free := make([]bool, fileSize/p.size)
	if end > uint64(len(free)) {
		return nil, fmt.Errorf("it was cut to %d of %d pages", len(free), end)
	}
	p.seen = make([]bool, end)
	list, err := p.free(freelist)
	if err != nil {
		return nil, err
	}
	for ; len(list) > 0; list = list[8:] {
		free[binary.NativeEndian.Uint64(list)] = true
	}
	for id := end; id < uint64(len(free)); id++ {
		free[id] = true
	}
	return free, nil
}

// newest is what bbolt begins with: the valid one of the two meta pages, and the newer
// one of two. The older is the state one transaction before, whose pages are not used
// again until the next one.
func (p *pages) newest() (root, freelist, end uint64, err error) {
	var newest uint64
	err = errors.New("it has no valid meta page")
	for id := range int64(2) {
		page := make([]byte, headerSize+metaSize)
		if _, err := p.file.ReadAt(page, id*p.size); err != nil {
			return 0, 0, 0, err
		}
		meta := page[headerSize:]
		u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(meta[at:]) }
		u64 := func(at int) uint64 { return binary.NativeEndian.Uint64(meta[at:]) }
		sum := fnv.New64a()
		sum.Write(meta[:metaSize-8])
		if u32(0) != magic || u32(4) != layout || sum.Sum64() != u64(metaSize-8) {
			continue
		}
		if int64(u32(8)) != p.size {
			return 0, 0, 0, fmt.Errorf("its meta pages contradict each other (pages of %d and %d bytes)", p.size, u32(8))
		}
		if txid := u64(48); err != nil || txid > newest {
			newest, root, freelist, end, err = txid, u64(16), u64(32), u64(40), nil
		}
	}
	return root, freelist, end, err
}

// read reads a page with those that it flows over into. No two may share one. The
// bytes are valid until the next page of the same depth is read.
func (p *pages) read(id uint64, depth int) ([]byte, error) {
	if depth >= maxTreeDepth {
		return nil, fmt.Errorf("page %d is nested too deeply", id)
	}
	if id < 2 || id >= uint64(len(p.seen)) {
		return nil, fmt.Errorf("page %d is not one of %d", id, len(p.seen))
	}
	for len(p.buffers) <= depth {
		p.buffers = append(p.buffers, make([]byte, p.size))
	}
	page := p.buffers[depth][:p.size]
	if _, err := p.file.ReadAt(page, int64(id)*p.size); err != nil {
		return nil, err
	}
	if have := binary.NativeEndian.Uint64(page); have != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, have)
	}
	overflow := uint64(binary.NativeEndian.Uint32(page[12:]))
	if overflow >= uint64(len(p.seen))-id {
		return nil, fmt.Errorf("page %d flows over the end", id)
	}
	for i := id; i <= id+overflow; i++ {
		if err := p.mark(i); err != nil {
			return nil, err
		}
	}
	if overflow > 0 {
		page = append(page, make([]byte, int64(overflow)*p.size)...)
		p.buffers[depth] = page
		if _, err := p.file.ReadAt(page[p.size:], (int64(id)+1)*p.size); err != nil {
			return nil, err
		}
	}
	return page, nil
}

func (p *pages) mark(id uint64) error {
	if id < 2 || id >= uint64(len(p.seen)) {
		return fmt.Errorf("page %d is not one of %d", id, len(p.seen))
	}
	if p.seen[id] {
		return fmt.Errorf("page %d is used twice", id)
	}
	p.seen[id] = true
	return nil
}

func flags(page []byte) uint16 { return binary.NativeEndian.Uint16(page[8:]) }
func count(page []byte) int    { return int(binary.NativeEndian.Uint16(page[10:])) }

// free checks the list of free pages, and returns their numbers, of eight bytes each: one
// that is in use as well would be written over.
func (p *pages) free(id uint64) ([]byte, error) {
	page, err := p.read(id, 0)
	if err != nil {
		return nil, err
	}
	if flags(page) != freelistPage {
		return nil, fmt.Errorf("page %d is not the list of free pages", id)
	}
	n, list := uint64(count(page)), page[headerSize:]
	if n == 0xFFFF {
		n, list = binary.NativeEndian.Uint64(list), list[8:]
	}
	if n > uint64(len(list)/8) {
		return nil, fmt.Errorf("page %d lists more than it holds", id)
	}
	for i := range n {
		if err := p.mark(binary.NativeEndian.Uint64(list[8*i:])); err != nil {
			return nil, err
		}
	}
	return list[:8*n], nil
}

// tree checks a tree whose keys begin with first and are below end, where these are
// not nil. bbolt finds a page in the one above by its first key: with another there it
// would add a second entry for it, where bbolt's own check is content with a lower one.
func (p *pages) tree(id uint64, depth int, first, end []byte) error {
	page, err := p.read(id, depth)
	if err != nil {
		return err
	}
	switch flags(page) {
	case leafPage:
		err = p.leaf(page, depth, first, end)
	case branchPage:
		err = p.branch(page, depth, first, end)
	default:
		err = fmt.Errorf("it has flags %#x", flags(page))
	}
	if err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

func (p *pages) branch(page []byte, depth int, first, end []byte) error {
	n := count(page)
	if n == 0 {
		return errors.New("it leads nowhere")
	}
	key, err := branchKey(page, 0)
	if err != nil {
		return err
	}
	if first != nil && !bytes.Equal(key, first) {
		return errOrder
	}
	for i := range n {
		next := end
		if i+1 < n {
			if next, err = branchKey(page, i+1); err != nil {
				return err
			}
			if bytes.Compare(next, key) <= 0 {
				return errOrder
			}
		}
		if end != nil && bytes.Compare(key, end) >= 0 {
			return errOrder
		}
		child := binary.NativeEndian.Uint64(page[headerSize+i*elementSize+8:])
		if err := p.tree(child, depth+1, key, next); err != nil {
			return err
		}
		key = next
	}
	return nil
}

var errOrder = errors.New("its keys are in disorder")

func branchKey(page []byte, i int) ([]byte, error) {
	at := headerSize + i*elementSize
	if at+elementSize > len(page) {
		return nil, errOutside
	}
	pos, size := binary.NativeEndian.Uint32(page[at:]), binary.NativeEndian.Uint32(page[at+4:])
	return part(page, at, pos, size, 0)
}

var errOutside = errors.New("it points outside of itself")

// part is a key, or what follows it, where an element points at.
func part(page []byte, at int, pos, keySize, valueSize uint32) ([]byte, error) {
	begin := int64(at) + int64(pos)
	end := begin + int64(keySize) + int64(valueSize)
	if keySize == 0 || begin < headerSize || end > int64(len(page)) {
		return nil, errOutside
	}
	return page[begin:end], nil
}

// leaf checks a leaf page, also one that is inline, and the buckets in it.
func (p *pages) leaf(page []byte, depth int, first, end []byte) error {
	n := count(page)
	if headerSize+n*elementSize > len(page) {
		return errOutside
	}
	if n == 0 && first != nil {
		return errOrder
	}
	var last []byte
	for i := range n {
		at := headerSize + i*elementSize
		u32 := func(offset int) uint32 { return binary.NativeEndian.Uint32(page[at+offset:]) }
		isBucket, keySize := u32(0), u32(8)
		both, err := part(page, at, u32(4), keySize, u32(12))
		if err != nil {
			return err
		}
		key, value := both[:keySize], both[keySize:]
		if bytes.Compare(key, last) <= 0 || i == 0 && first != nil && !bytes.Equal(key, first) || end != nil && bytes.Compare(key, end) >= 0 {
			return errOrder
		}
		last = key
		switch isBucket {
		case 0:
		case 1:
			if err := p.bucket(value, depth); err != nil {
				return fmt.Errorf("bucket %q: %w", key, err)
			}
		default:
			return fmt.Errorf("an element has flags %#x", isBucket)
		}
	}
	return nil
}

func (p *pages) bucket(value []byte, depth int) error {
	if len(value) < bucketSize {
		return errOutside
	}
	if root := binary.NativeEndian.Uint64(value); root != 0 {
		return p.tree(root, depth+1, nil, nil)
	}
	inline := value[bucketSize:]
	if len(inline) < headerSize || flags(inline) != leafPage || depth >= maxTreeDepth {
		return errOutside
	}
	return p.leaf(inline, depth+1, nil, nil)
}
