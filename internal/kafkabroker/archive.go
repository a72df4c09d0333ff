package kafkabroker

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/kbridge-io/kbridge/internal/testserver"
)

// classArchive returns the path of a file with Kafka's classes in the form in which the Java runtime has them in
// memory. With it a start takes 1.8 s of a processor, and 3.3 s without. The file is beside the jars, is made once for
// each Java runtime, and is there only when it is whole.
func classArchive(ctx context.Context, jars string, progress io.Writer) (string, error) {
	java, err := javaRuntime()
	if err != nil {
		return "", err
	}
	path := filepath.Join(jars, "classes-"+java+".jsa")
	if _, err := os.Stat(path); err == nil {
		return path, nil
	}
	lock, err := testserver.LockFile(ctx, jars+".lock", nil)
	if err != nil {
		return "", fmt.Errorf("wait for another process to make the archive of Kafka's classes: %w", err)
	}
	defer lock.Release()
	if _, err := os.Stat(path); err == nil { // the other process has made it
		return path, nil
	}
	fmt.Fprintln(progress, "kafkabroker: making an archive of Kafka's classes, with which it starts in half the time. "+
		"This happens once for this user and takes a few seconds")
	if err := makeClassArchive(ctx, jars, path); err != nil {
		return "", fmt.Errorf("make an archive of Kafka's classes: %w", err)
	}
	return path, nil
}

// makeClassArchive runs a broker with all listeners, whose runtime writes the file when it ends.
func makeClassArchive(ctx context.Context, jars, path string) (err error) {
	c := &Cluster{jars: jars, opts: Options{Nodes: 1, TLS: true, Users: []User{{Name: "a", Password: "a"}}}}
	defer func() { err = errors.Join(err, c.Stop()) }()
	if err := c.prepare(); err != nil {
		return err
	}
	if err := c.format(ctx); err != nil {
		return err
	}
	partial := path + ".partial" // the lock keeps others from it
	defer os.Remove(partial)
	c.archive = "-XX:ArchiveClassesAtExit=" + partial
	if err := c.StartAll(ctx); err != nil {
		return err
	}
	if err := c.Nodes[0].Stop(ctx); err != nil {
		return err
	}
	return os.Rename(partial, path)
}
