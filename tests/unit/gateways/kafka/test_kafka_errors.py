"""Every failure has a name in Kafka's protocol, and it is Kafka's number."""

from kio.schema.errors import ErrorCode as KioErrorCode

from flymq.gateways.kafka.errors import CODES, ErrorCode, code_of
from flymq.model import errors


def test_the_numbers_are_kafkas() -> None:
    theirs = {code.name.removesuffix("_exception"): code.value for code in KioErrorCode}
    assert {code.name.lower(): code.value for code in ErrorCode}.items() <= theirs.items()


def test_an_error_without_a_number_of_its_own_has_that_of_its_closest_parent() -> None:
    assert code_of(errors.CorruptBatch()) is ErrorCode.CORRUPT_MESSAGE
    assert code_of(errors.EmptyBatch()) is ErrorCode.INVALID_RECORD
    assert code_of(errors.DiskFull()) is ErrorCode.KAFKA_STORAGE_ERROR
    assert code_of(errors.TopicIsInternal()) is ErrorCode.INVALID_TOPIC
    assert code_of(errors.InternalError()) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert code_of(None) is ErrorCode.NONE


def test_what_can_be_retried_here_can_be_retried_in_kafkas_clients() -> None:
    by_value = {code.value: code for code in KioErrorCode}
    # Kafka's clients know by other means what to do about these.
    special = {errors.RebalanceInProgress, errors.MemberIdRequired}
    for error, code in CODES.items():
        if error.retriable and error not in special:
            assert by_value[code].retriable, error.code
