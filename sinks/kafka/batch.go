package kafka

// batch is the records of one request for one partition.
type batch struct {
	partition *partition
	items     []*item
	owners    []*item // of each record
	count     int     // of records
	bytes     int     // about, before encoding
	plain     int     // before compression
	start     int     // where it is among the encoded ones, with its length before it
	end       int
	repeat    bool // of one that may be stored
	identity
}

// size is how many bytes a broker gets, which is what it holds against a topic's limit.
func (b *batch) size() int { return b.end - b.start - lengthPrefix }

// own notes the next record's item.
func (b *batch) own(it *item) {
	b.owners = append(b.owners, it)
	b.count++
}

// cut takes a batch off the queue. One event that is larger than a batch goes alone.
func (s *Sink) cut(p *partition, b *batch) {
	limit := s.batchLimit(p)
	n, size := 0, batchHead
	for n < len(p.items) && (n < p.again || p.again == 0 && (n == 0 || size+p.items[n].size <= limit)) {
		size += p.items[n].size
		n++
	}
	b.repeat, p.again = p.again > 0, 0
	b.partition, b.bytes = p, size
	b.items = append(b.items[:0], p.items[:n]...)
	p.bytes -= size - batchHead
	rest := copy(p.items, p.items[n:])
	clear(p.items[rest:])
	p.items = p.items[:rest]
	p.busy, p.listed = true, false
	b.identity = s.identify(p)
}
