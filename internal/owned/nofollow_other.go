//go:build !unix

package owned

// noFollow is nothing here: what OpenFile looks at before has to do.
const noFollow = 0
