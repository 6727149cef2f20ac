package main

import (
	"encoding/json"
	"time"

	"gopkg.in/inf.v0"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/cpuset"
)

type textRequest struct {
	Text string `json:"text"`
}

// amount describes a quantity. Nano is the exact number of billionths; Canonical is computed anew,
// for String repeats some spellings as they were written.
type amount struct {
	Canonical string `json:"canonical"`
	Family    string `json:"family"`
	Nano      string `json:"nano"`
	Value     int64  `json:"value"`
	Milli     int64  `json:"milli"`
}

func describe(q resource.Quantity) *amount {
	number, suffix := q.CanonicalizeBytes(nil)
	described := &amount{
		Canonical: string(number) + string(suffix),
		Family:    string(q.Format),
		Value:     q.Value(),
		Milli:     q.MilliValue(),
	}
	// AsDec changes its receiver.
	copied := q.DeepCopy()
	exact := new(inf.Dec).Round(copied.AsDec(), 9, inf.RoundUp)
	described.Nano = exact.UnscaledBig().String()
	return described
}

type quantityReply struct {
	Error  *string `json:"error"`
	Amount *amount `json:"amount"`
}

func quantity(request textRequest) quantityReply {
	q, err := resource.ParseQuantity(request.Text)
	if err != nil {
		return quantityReply{Error: text(err)}
	}
	return quantityReply{Amount: describe(q)}
}

type pairRequest struct {
	A string `json:"a"`
	B string `json:"b"`
}

type pairReply struct {
	Error      *string `json:"error"`
	Sum        *amount `json:"sum"`
	Difference *amount `json:"difference"`
	Order      int     `json:"order"`
}

func quantityPair(request pairRequest) pairReply {
	a, err := resource.ParseQuantity(request.A)
	if err != nil {
		return pairReply{Error: text(err)}
	}
	b, err := resource.ParseQuantity(request.B)
	if err != nil {
		return pairReply{Error: text(err)}
	}
	sum, difference, left, right := a.DeepCopy(), a.DeepCopy(), a.DeepCopy(), b.DeepCopy()
	sum.Add(b.DeepCopy())
	difference.Sub(b.DeepCopy())
	return pairReply{Sum: describe(sum), Difference: describe(difference), Order: left.Cmp(right)}
}

type durationReply struct {
	Error     *string `json:"error"`
	Canonical string  `json:"canonical"`
	Nanos     int64   `json:"nanos"`
}

func duration(request textRequest) durationReply {
	d, err := time.ParseDuration(request.Text)
	if err != nil {
		return durationReply{Error: text(err)}
	}
	return durationReply{Canonical: d.String(), Nanos: d.Nanoseconds()}
}

type timeReply struct {
	Error   *string `json:"error"`
	Written string  `json:"written"`
	Seconds int64   `json:"seconds"`
	Nanos   int     `json:"nanos"`
}

func timestamp(request textRequest) timeReply {
	quoted, err := json.Marshal(request.Text)
	if err != nil {
		return timeReply{Error: text(err)}
	}
	var t metav1.Time
	if err := t.UnmarshalJSON(quoted); err != nil {
		return timeReply{Error: text(err)}
	}
	written, err := t.MarshalJSON()
	if err != nil {
		return timeReply{Error: text(err)}
	}
	return timeReply{Written: string(written), Seconds: t.Unix(), Nanos: t.Nanosecond()}
}

type cpuReply struct {
	Error     *string `json:"error"`
	Canonical string  `json:"canonical"`
	Size      int     `json:"size"`
}

func cpuList(request textRequest) cpuReply {
	cpus, err := cpuset.Parse(request.Text)
	if err != nil {
		return cpuReply{Error: text(err)}
	}
	return cpuReply{Canonical: cpus.String(), Size: cpus.Size()}
}
