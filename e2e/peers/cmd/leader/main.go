// Command leader takes part in a leader election by Kubernetes' own client, for tests that let it compete with ours.
//
// While it leads it prints "lead NANOS TERM" lines: the wall clock just before it made sure that it leads, and how
// many terms it has had. It competes until it is told to stop by SIGTERM.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
)

func main() {
	kubeconfig := flag.String("kubeconfig", "", "how to reach the cluster")
	namespace := flag.String("namespace", "default", "where the lease is")
	name := flag.String("name", "lease", "what the lease is called")
	identity := flag.String("identity", "go", "who we are")
	lease := flag.Duration("lease-duration", 15*time.Second, "how long a term is")
	renew := flag.Duration("renew-deadline", 10*time.Second, "how long a renewal is tried")
	retry := flag.Duration("retry-period", 2*time.Second, "how often the lease is looked at")
	flag.Parse()

	config, err := clientcmd.BuildConfigFromFlags("", *kubeconfig)
	if err != nil {
		fail(err)
	}
	config.Timeout = *renew
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		fail(err)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()

	lock := &resourcelock.LeaseLock{
		LeaseMeta:  metav1.ObjectMeta{Namespace: *namespace, Name: *name},
		Client:     client.CoordinationV1(),
		LockConfig: resourcelock.ResourceLockConfig{Identity: *identity},
	}
	var term atomic.Int64
	for ctx.Err() == nil {
		var elector *leaderelection.LeaderElector
		elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
			Lock:            lock,
			LeaseDuration:   *lease,
			RenewDeadline:   *renew,
			RetryPeriod:     *retry,
			ReleaseOnCancel: true,
			Callbacks: leaderelection.LeaderCallbacks{
				OnStartedLeading: func(ctx context.Context) { work(ctx, elector, term.Add(1)) },
				OnStoppedLeading: func() { fmt.Println("stopped") },
			},
		})
		if err != nil {
			fail(err)
		}
		elector.Run(ctx)
	}
}

// work claims to lead, as often as it is sure of it.
func work(ctx context.Context, elector *leaderelection.LeaderElector, term int64) {
	fmt.Println("started")
	for ctx.Err() == nil {
		now := time.Now().UnixNano()
		if elector.IsLeader() && elector.Check(0) == nil {
			fmt.Println("lead", now, term)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func fail(err error) {
	fmt.Fprintln(os.Stderr, err)
	os.Exit(1)
}
