; examine the cd with the desklamp.
; The lamp is on the desk, the disc in a safe.
(define (problem mini_look)
(:domain alfred)
(:objects
    agent1 - agent
    CD_bar_1 DeskLamp_bar_1 Pencil_bar_1 Window_bar_1 - object
    Desk_bar_1 Safe_bar_1 Shelf_bar_1 - receptacle
    loc_bar_0 loc_bar_1 loc_bar_2 loc_bar_3 loc_bar_4 - location
    CDType DeskLampType PencilType WindowType - otype
    DeskType SafeType ShelfType - rtype)
(:init
    (atLocation agent1 loc_bar_0)
    (receptacleAtLocation Desk_bar_1 loc_bar_1) (receptacleType Desk_bar_1 DeskType)
    (receptacleAtLocation Safe_bar_1 loc_bar_2) (receptacleType Safe_bar_1 SafeType) (openable Safe_bar_1)
    (receptacleAtLocation Shelf_bar_1 loc_bar_3) (receptacleType Shelf_bar_1 ShelfType)
    (objectType CD_bar_1 CDType) (pickupable CD_bar_1)
    (objectType DeskLamp_bar_1 DeskLampType) (toggleable DeskLamp_bar_1)
    (objectType Pencil_bar_1 PencilType) (pickupable Pencil_bar_1)
    (objectType Window_bar_1 WindowType) (objectAtLocation Window_bar_1 loc_bar_4)
    (inReceptacle CD_bar_1 Safe_bar_1) (objectAtLocation CD_bar_1 loc_bar_2)
    (inReceptacle DeskLamp_bar_1 Desk_bar_1) (objectAtLocation DeskLamp_bar_1 loc_bar_1)
    (inReceptacle Pencil_bar_1 Shelf_bar_1) (objectAtLocation Pencil_bar_1 loc_bar_3)
    (canContain DeskType CDType) (canContain DeskType PencilType)
    (canContain SafeType CDType) (canContain ShelfType CDType) (canContain ShelfType PencilType))
(:goal (and
    (exists (?ot - object ?r - receptacle ?a - agent ?l - location)
        (and (objectType ?ot DeskLampType) (toggleable ?ot) (isToggled ?ot) (receptacleAtLocation ?r ?l)
             (atLocation ?a ?l) (inReceptacle ?ot ?r)))
    (exists (?o - object ?a - agent) (and (objectType ?o CDType) (holds ?a ?o))))))
