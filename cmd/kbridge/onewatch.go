package main

import (
	"context"
	"time"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/informer"
	"github.com/kbridge-io/kbridge/internal/cause"
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
		logged := ""
		for pause := time.Second; ; pause = min(2*pause, 30*time.Second) {
			may, err := client.MayWatchAll(ctx, r.APIGroup(), r.Resource)
			if err == nil {
				r.OneWatch = may
				break
			}
			if c := cause.Of(err); c != logged {
				logged = c
				d.log.Warn("whether the resource may be watched everywhere can not be found out, trying again", "entry", d.names[n], "err", err)
			}
			select {
			case <-time.After(pause):
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		if r.OneWatch {
			d.log.Info("one watch of all namespaces serves the entry's", "entry", d.names[n], "namespaces", len(r.Namespaces))
		} else {
			d.log.Info("each of the entry's namespaces has a watch: one of all of them is not allowed", "entry", d.names[n], "namespaces", len(r.Namespaces))
		}
	}
	return nil
}
