package informer

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kbridge-io/kbridge/config"
	"github.com/kbridge-io/kbridge/event"
	"github.com/kbridge-io/kbridge/internal/scriptedapi"
)

// bodies are documents of one shape with content of their own.
func bodies(rng *rand.Rand, shape string) func() []byte {
	return func() []byte {
		return fmt.Appendf(nil, `{"apiVersion":"v1","kind":"Thing","metadata":{"name":"thing-%x","uid":"%x-%x"},"spec":{%s,"value":%d}}`, rng.Uint32(), rng.Uint64(), rng.Uint64(), shape, rng.IntN(100))
	}
}

// packAll packs n bodies and returns what they take, in bytes.
func packAll(t *testing.T, p *packer, n int, body func() []byte) (size int) {
	t.Helper()
	for range n {
		plain := body()
		o := &event.Object{}
		o.Body, o.Dictionary = p.pack(nil, plain)
		size += len(o.Body)
		if got, err := o.JSON(); err != nil || !bytes.Equal(got, plain) {
			t.Fatalf("%s was packed, and is %s, error %v", plain, got, err)
		}
	}
	return size
}

func TestTheFirstObjectsMakeTheDictionaryOfAll(t *testing.T) {
	p := &packer{}
	body := bodies(rand.New(rand.NewPCG(1, 1)), `"template":{"containers":[{"name":"app","image":"registry.example/app"}],"restartPolicy":"Always","terminationGracePeriodSeconds":30}`)
	first := packAll(t, p, minSamples, body)
	then := packAll(t, p, minSamples, body)
	if then > first/2 {
		t.Errorf("the first take %d bytes, the next %d", first, then)
	}
}

func TestAKindThatChangesGetsAnotherDictionaryAndKeepsABetterOne(t *testing.T) {
	p := &packer{}
	rng := rand.New(rand.NewPCG(1, 1))
	old := bodies(rng, `"a":{"replicas":3,"selector":{"matchLabels":{"app":"checkout"}},"strategy":"RollingUpdate"}`)
	packAll(t, p, 2*firstTrial, old)
	first := p.dictionary
	fresh := bodies(rng, `"b":{"endpoints":["10.0.0.1","10.0.0.2"],"ports":[{"port":8443,"protocol":"TCP","targetPort":"https"}],"policy":{"internal":"Cluster"}}`)
	before := packAll(t, p, 100, fresh)
	packAll(t, p, 40*firstTrial, fresh)
	if after := packAll(t, p, 100, fresh); p.dictionary == first || after > before*2/3 {
		t.Errorf("before the trial 100 take %d bytes, and after it %d", before, after)
	}
	best := p.dictionary
	packAll(t, p, 1000*firstTrial/8, fresh)
	if p.dictionary != best {
		t.Error("a dictionary that is no better replaces the one in use")
	}
}

func TestADictionaryOfAnEarlierRunIsUsedOn(t *testing.T) {
	earlier := &packer{}
	body := bodies(rand.New(rand.NewPCG(1, 1)), `"a":{"replicas":3,"selector":{"matchLabels":{"app":"checkout"}}}`)
	packAll(t, earlier, minSamples, body)
	p := &packer{}
	p.adopt(earlier.dictionary)
	if _, d := p.pack(nil, body()); d != earlier.dictionary {
		t.Errorf("the first body is packed with %v", d)
	}
}

// A dictionary is stored for as long as a body needs it: what is in it must go when its
// watch does, and what is left out must not be in it at all.
func TestADictionaryHasBodiesOfItsWatchAlone(t *testing.T) {
	for name, r := range map[string]config.Resource{
		"each namespace is a watch": {Resource: "configmaps", Namespaces: []string{"one", "two"}},
		"a namespace is left out":   {Resource: "configmaps", ExcludeNamespaces: []string{"apart"}},
	} {
		t.Run(name, func(t *testing.T) {
			bothWays(t, func(t *testing.T, setup func(*scriptedapi.Server)) {
				inBubble(t, r, func(api *scriptedapi.Server) {
					setup(api)
					for _, ns := range []string{"apart", "two", "one"} {
						for n := range minSamples {
							api.Create(configMaps, configMap(ns, fmt.Sprint("o", n), map[string]any{"text": "of namespace " + ns}))
						}
					}
				}, func(b *bench) {
					for _, ns := range []string{"apart", "two", "one"} { // what is packed when the samples are enough
						for n := range minSamples {
							b.api.Update(configMaps, ns, fmt.Sprint("o", n), setData("more", "of namespace "+ns))
						}
					}
					b.rest()
					packed := 0
					for _, v := range b.views {
						for _, key := range v.Index.Keys() {
							v.Index.With(key, func(o *event.Object) {
								if o.Dictionary == nil {
									return
								}
								packed++
								for _, ns := range []string{"one", "two", "apart"} {
									other := v.Namespace != "" && ns != v.Namespace || v.Namespace == "" && ns == "apart"
									if other && strings.Contains(string(o.Dictionary.Bytes()), "of namespace "+ns) {
										t.Fatalf("%s is packed with what is of namespace %s", key, ns)
									}
								}
							})
						}
					}
					if packed < minSamples {
						t.Errorf("%d bodies are packed", packed)
					}
				})
			})
		})
	}
}
