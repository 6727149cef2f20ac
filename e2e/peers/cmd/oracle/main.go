// Command oracle answers how Kubernetes' own libraries read and match things: one JSON request per
// line on standard input, one JSON answer per line on standard output, in the same order.
package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
)

// operations by the name in a request's "op".
var operations = map[string]func(json.RawMessage) (any, error){
	"quantity":        answer(quantity),
	"quantity-pair":   answer(quantityPair),
	"duration":        answer(duration),
	"time":            answer(timestamp),
	"cpuset":          answer(cpuList),
	"label-selector":  answer(labelSelector),
	"label-text":      answer(labelText),
	"field-selector":  answer(fieldSelector),
	"label-key":       answer(labelKey),
	"label-value":     answer(labelValue),
	"node-selector":   answer(nodeSelector),
	"preferred-terms": answer(preferredTerms),
	"pod-affinity":    answer(podAffinity),
	"toleration":      answer(toleration),
	"json-patch":      answer(jsonPatch),
	"merge-patch":     answer(mergePatch),
	"strategic-patch": answer(strategicPatch),
	"owners":          answer(owners),
}

// answer turns a function of one request type into one of raw JSON.
func answer[Request, Reply any](f func(Request) Reply) func(json.RawMessage) (any, error) {
	return func(raw json.RawMessage) (any, error) {
		var request Request
		if err := json.Unmarshal(raw, &request); err != nil {
			return nil, err
		}
		return f(request), nil
	}
}

func main() {
	if err := serve(); err != nil {
		fmt.Fprintln(os.Stderr, "oracle:", err)
		os.Exit(1)
	}
}

func serve() error {
	input := bufio.NewScanner(os.Stdin)
	input.Buffer(make([]byte, 1<<16), 1<<24)
	output := bufio.NewWriter(os.Stdout)
	encoder := json.NewEncoder(output)
	for input.Scan() {
		var head struct {
			Op string `json:"op"`
		}
		if err := json.Unmarshal(input.Bytes(), &head); err != nil {
			return fmt.Errorf("request %q: %w", input.Text(), err)
		}
		operation, ok := operations[head.Op]
		if !ok {
			return fmt.Errorf("request %q: unknown operation", input.Text())
		}
		reply, err := operation(input.Bytes())
		if err != nil {
			return fmt.Errorf("request %q: %w", input.Text(), err)
		}
		if err := encoder.Encode(reply); err != nil {
			return err
		}
	}
	if err := input.Err(); err != nil {
		return err
	}
	return output.Flush()
}

// text of an error, none for nil.
func text(err error) *string {
	if err == nil {
		return nil
	}
	message := err.Error()
	return &message
}
