package v1alpha1

// LabelRestoreOf is the label of a VirtualMachineSnapshot that was made before a restore of a VirtualMachine: the UID of that
// VirtualMachine.
const LabelRestoreOf = GroupName + "/before-restore-of"
