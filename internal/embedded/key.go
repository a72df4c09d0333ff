package embedded

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nats-io/nkeys"

	"github.com/kbridge-io/kbridge/internal/owned"
)

const keyFile = "nkey"

// KeyFile has the seed of the nkey that the directory's server lets in, for whoever may
// read it. It is not sent to a server, as a token would be: the address may be left over
// from a kbridge that was killed, and another process's now.
func KeyFile(dir string) string { return filepath.Join(dir, keyFile) }

// ensureKey returns the public half of the key in the file, which it makes anew unless
// it is one that nobody else can have read or written.
func ensureKey(path string) (public string, err error) {
	pair, err := readKey(path)
	if err == nil {
		return pair.PublicKey()
	}
	if pair, err = nkeys.CreateUser(); err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	seed, err := pair.Seed()
	if err != nil {
		return "", fmt.Errorf("make a key: %w", err)
	}
	if err := owned.Replace(path, append(seed, '\n')); err != nil {
		return "", fmt.Errorf("write the key: %w", err)
	}
	return pair.PublicKey()
}

func readKey(path string) (nkeys.KeyPair, error) {
	f, err := owned.OpenFile(path, os.O_RDONLY, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if err := owned.Private(f); err != nil {
		return nil, err
	}
	var seed [58]byte // of a user, in base 32
	if _, err := io.ReadFull(f, seed[:]); err != nil {
		return nil, err
	}
	pair, err := nkeys.FromSeed(seed[:])
	if err != nil {
		return nil, err
	}
	if public, err := pair.PublicKey(); err != nil || !nkeys.IsValidPublicUserKey(public) {
		return nil, fmt.Errorf("%s has no key of a user", path)
	}
	return pair, nil
}
