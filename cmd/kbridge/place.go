package main

import (
	"github.com/spf13/cobra"

	"github.com/kbridge-io/kbridge/config"
)

// place is what the command line says of where kbridge runs: the flags that a start and a
// check of one share.
type place struct {
	kubeconfig  string
	kubeContext string
	embedded    bool
	dataDir     string // empty: beside the state, or the default
}

func (p *place) flags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&p.kubeconfig, "kubeconfig", "", "the kubeconfig file (default: as kubectl finds it)")
	f.StringVar(&p.kubeContext, "context", "", "the kubeconfig's context")
	f.BoolVar(&p.embedded, "embedded", false, "publish to an in-process nats-server, and to no other sink")
	f.StringVar(&p.dataDir, "data-dir", "", "where the embedded server and the dead letters are kept (default: beside the state, and without state "+defaultDataDir()+")")
}

// data is the folder of the embedded server and of the dead letters.
func (p *place) data(cfg *config.Config) string {
	switch {
	case p.dataDir != "":
		return p.dataDir
	case cfg.State != nil:
		return cfg.State.File.Dir
	}
	return defaultDataDir()
}

// isEmbedded says that the one sink is the in-process server.
func (p *place) isEmbedded(cfg *config.Config) bool { return p.embedded || len(cfg.Sinks) == 0 }
