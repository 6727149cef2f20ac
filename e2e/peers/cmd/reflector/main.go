// Command reflector keeps the config maps of a namespace by Kubernetes' own informer, for tests that mistreat its
// connection to a server.
//
// For every line on standard input it prints one line of JSON: what its store holds, and what a handler that replays
// the informer's events holds, each as name to the data's "value"; and how often events contradicted each other. It
// ends with its input.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/clientcmd"
)

// state is what one answer tells.
type state struct {
	Store    map[string]string `json:"store"`
	Replayed map[string]string `json:"replayed"`
	Faults   []string          `json:"faults"`
}

// replay follows the events alone, without the store.
type replay struct {
	mu     sync.Mutex
	values map[string]string
	faults []string
}

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	namespace := flag.String("namespace", "default", "whose config maps")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	config.QPS, config.Burst = -1, -1
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithNamespace(*namespace))
	informer := factory.Core().V1().ConfigMaps().Informer()
	seen := &replay{values: map[string]string{}}
	if _, err := informer.AddEventHandler(seen); err != nil {
		fail(err)
	}
	stop := make(chan struct{})
	factory.Start(stop)

	lines := bufio.NewScanner(os.Stdin)
	for lines.Scan() {
		answer, err := json.Marshal(seen.state(informer.GetStore()))
		if err != nil {
			fail(err)
		}
		fmt.Println(string(answer))
	}
	close(stop)
}

func (r *replay) OnAdd(object interface{}, _ bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	m := object.(*corev1.ConfigMap)
	if _, known := r.values[m.Name]; known {
		r.faults = append(r.faults, m.Name+" added twice")
	}
	r.values[m.Name] = m.Data["value"]
}

func (r *replay) OnUpdate(before, after interface{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o, m := before.(*corev1.ConfigMap), after.(*corev1.ConfigMap)
	if r.values[m.Name] != o.Data["value"] {
		r.faults = append(r.faults, m.Name+" updated from what it was not")
	}
	r.values[m.Name] = m.Data["value"]
}

func (r *replay) OnDelete(object interface{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := ""
	switch o := object.(type) {
	case *corev1.ConfigMap:
		name = o.Name
	case cache.DeletedFinalStateUnknown:
		// The informer missed the deletion and found out by listing.
		_, name, _ = cache.SplitMetaNamespaceKey(o.Key)
	}
	if _, known := r.values[name]; !known {
		r.faults = append(r.faults, name+" deleted twice")
	}
	delete(r.values, name)
}

func (r *replay) state(store cache.Store) state {
	r.mu.Lock()
	defer r.mu.Unlock()
	held := map[string]string{}
	for _, object := range store.List() {
		m := object.(*corev1.ConfigMap)
		held[m.Name] = m.Data["value"]
	}
	replayed := map[string]string{}
	for name, value := range r.values {
		replayed[name] = value
	}
	return state{Store: held, Replayed: replayed, Faults: append([]string{}, r.faults...)}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
