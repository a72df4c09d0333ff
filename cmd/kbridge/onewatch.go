package main

import (
	"context"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer"
)

// chooseWatches decides which entries with many namespaces have one watch of all of them:
// those whose resource may be listed and watched everywhere. It asks for as long as nobody
// answers; an error says that ctx has ended.
func (d *daemon) chooseWatches(ctx context.Context, client *informer.Client) error {
	for n := range d.cfg.Resources {
		r := &d.cfg.Resources[n]
		if len(r.Namespaces) <= config.ManyNamespaces {
			continue
		}
		if err := d.insist(ctx, client, func() (err error) {
			r.OneWatch, err = client.MayWatchAll(ctx, r.APIGroup(), r.Resource)
			return err
		}); err != nil {
			return err
		}
		if r.OneWatch {
			d.log.Info("one watch of all namespaces serves the entry's", "entry", d.names[n], "namespaces", len(r.Namespaces))
		} else {
			d.log.Info("each of the entry's namespaces has a watch: one of all of them is not allowed", "entry", d.names[n], "namespaces", len(r.Namespaces))
		}
	}
	return nil
}
