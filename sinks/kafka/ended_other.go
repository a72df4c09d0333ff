//go:build !linux && !darwin && !freebsd

package kafka

// ended says nothing here: what meets the end of an idle connection is repeated, where the
// broker would recognise it.
func (c *conn) ended() bool { return false }
