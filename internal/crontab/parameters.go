package crontab

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	stablev1 "github.com/keelson-dev/keelson/api/stable/v1"
)

// ParameterError says why a run cannot have its parameters.
type ParameterError string

func (e ParameterError) Error() string { return string(e) }

// Values are the values of the parameters in a run, by name.
type Values map[string]stablev1.ParameterValue

// Defaults returns the values in a run that sets none; nil if there are no parameters.
func Defaults(spec *stablev1.CronTabSpec) Values {
	if len(spec.Parameters) == 0 {
		return nil
	}
	values := Values{}
	for _, p := range spec.Parameters {
		values[p.Name] = p.Default
	}
	return values
}

// RequestedValues returns the values in the run that spec.runRequestedAt requests. It fails with a ParameterError if the CRD did not
// refuse spec.runParameters, or if spec.parameters has changed since.
func RequestedValues(spec *stablev1.CronTabSpec) (Values, error) {
	values := Defaults(spec)
	for _, name := range slices.Sorted(maps.Keys(spec.RunParameters)) {
		if _, found := values[name]; !found {
			return nil, ParameterError(fmt.Sprintf("there is no parameter %q in spec.parameters%s", name, listed(": ", slices.Sorted(maps.Keys(values)))))
		}
		values[name] = spec.RunParameters[name]
	}
	for _, p := range spec.Parameters {
		switch value := values[p.Name]; {
		case p.Required && value == "":
			return nil, ParameterError(fmt.Sprintf("the parameter %q is required and has no value", p.Name))
		case len(p.Enum) > 0 && !slices.Contains(p.Enum, value):
			return nil, ParameterError(fmt.Sprintf("the parameter %q cannot be %q%s", p.Name, value, listed(", only ", p.Enum)))
		}
	}
	return values, nil
}

// listed returns a list with words before it; "" if it is empty.
func listed[T ~string](before string, all []T) string {
	if len(all) == 0 {
		return ""
	}
	var quoted []string
	for _, one := range all {
		quoted = append(quoted, fmt.Sprintf("%q", one))
	}
	return before + strings.Join(quoted, ", ")
}

// ParameterConflicts returns the parameters whose variables a container sets itself: whose value it would get is not obvious.
func ParameterConflicts(spec *stablev1.CronTabSpec, pod *corev1.PodSpec) field.ErrorList {
	var conflicts field.ErrorList
	for i, p := range spec.Parameters {
		for _, container := range slices.Concat(pod.InitContainers, pod.Containers) {
			if slices.ContainsFunc(container.Env, func(v corev1.EnvVar) bool { return v.Name == p.Name }) {
				conflicts = append(conflicts, field.Invalid(field.NewPath("spec", "parameters").Index(i).Child("name"), p.Name,
					fmt.Sprintf("container %s of spec.jobTemplate sets this variable itself. Remove it there, or rename the parameter", container.Name)))
			}
		}
	}
	return conflicts
}

// AddTo sets the values as variables of all containers of a Pod, before their own, which may refer to them. The slices of the
// Pod are replaced, not changed.
func (v Values) AddTo(pod *corev1.PodSpec) {
	var env []corev1.EnvVar
	for _, name := range slices.Sorted(maps.Keys(v)) {
		// The kubelet replaces $$ by $, and $(NAME) by another variable.
		env = append(env, corev1.EnvVar{Name: name, Value: strings.ReplaceAll(string(v[name]), "$", "$$")})
	}
	for _, containers := range []*[]corev1.Container{&pod.InitContainers, &pod.Containers} {
		*containers = slices.Clone(*containers)
		for i := range *containers {
			container := &(*containers)[i]
			container.Env = slices.Concat(env, container.Env)
		}
	}
}
