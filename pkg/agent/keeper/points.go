package keeper

// Points are the fault points of this package, "keeper.<verb>.<step>": each comes
// after a step that has lasting effects.
var Points = []string{
	"keeper.create.quiesced", "keeper.create.stored",
	"keeper.delete.unexported", "keeper.delete.deactivated", "keeper.delete.deleted",
	"keeper.expand.grown", "keeper.expand.told",
	"keeper.tune.labelled",
	"keeper.snapshot.quiesced", "keeper.snapshot.stored",
	"keeper.unsnapshot.deleted",
	"keeper.publish.journalled", "keeper.publish.settled",
	"keeper.unpublish.marked", "keeper.unpublish.settled",
	"keeper.fence.marked", "keeper.fence.revoked",
	"keeper.unfence.lifted",
	"keeper.settle.activated", "keeper.settle.ensured", "keeper.settle.revoked", "keeper.settle.removed",
	"keeper.settle.deactivated", "keeper.settle.forgotten",
	"keeper.restore.listed",
}
